"""The SageMaker operations: thin over `jobs.JobService`. The dispatcher has checked each request against the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainshed_service.jobs import JobQuery
from trainshed_service.jobs.reach import Reach, to_change, to_see
from trainshed_service.sagemaker import validation
from trainshed_service.sagemaker.search import compile_search
from trainshed_service.wire.errors import validation_error

if TYPE_CHECKING:
    from trainshed_service.identity import Principal
    from trainshed_service.services import Services
    from trainshed_service.wire import Context, Operation, Operations

Request = dict[str, Any]

_SORTABLE = (
    "CreationTime",
    "LastModifiedTime",
    "TrainingEndTime",
    "TrainingJobName",
    "TrainingJobStatus",
    "TrainingStartTime",
)
_TAG_PAGE = 50


async def create_training_job(ctx: Context, request: Request) -> Request:
    notices = _accept(ctx, request)
    await require_role(ctx.services, ctx.principal, request["RoleArn"])
    arn = await ctx.services.jobs.create(request, principal=ctx.principal, raw_body=ctx.raw_body, notices=notices)
    return {"TrainingJobArn": arn}


async def require_role(services: Services, principal: Principal, role: str) -> None:
    """In AWS's words where there is no such role (and none may come to be by being named), or the principal may not
    pass it."""
    await services.identity.passing.require(services.database, services.settings.roles, principal, role)


async def describe_training_job(ctx: Context, request: Request) -> Request:
    _accept(ctx, request)
    return await ctx.services.jobs.describe(request["TrainingJobName"], _seen(ctx))


async def list_training_jobs(ctx: Context, request: Request) -> Request:
    _accept(ctx, request)
    tokens, token = ctx.services.identity.page_tokens, request.get("NextToken")
    cursor = tokens.read("ListTrainingJobs", request, token) if token else None
    page = await ctx.services.jobs.list(JobQuery.of(request), cursor, _seen(ctx))
    response: Request = {"TrainingJobSummaries": page.summaries}
    if page.cursor is not None:
        response["NextToken"] = tokens.issue("ListTrainingJobs", request, page.cursor)
    return response


async def stop_training_job(ctx: Context, request: Request) -> None:
    _accept(ctx, request)
    await ctx.services.jobs.stop(request["TrainingJobName"], _changed(ctx))


async def update_training_job(ctx: Context, request: Request) -> Request:
    _accept(ctx, request)
    return {"TrainingJobArn": await ctx.services.jobs.update(request, _changed(ctx))}


async def delete_training_job(ctx: Context, request: Request) -> None:
    _accept(ctx, request)
    await ctx.services.jobs.delete(request["TrainingJobName"], _changed(ctx))


async def search(ctx: Context, request: Request) -> Request:
    _accept(ctx, request)
    if request["Resource"] != "TrainingJob":
        raise validation_error(f"Search over {request['Resource']} is not provided; only over TrainingJob.")
    sort_by = request.get("SortBy") or "LastModifiedTime"
    if sort_by not in _SORTABLE:
        raise validation_error(f"SortBy must be one of [{', '.join(_SORTABLE)}], not '{sort_by}'.")
    compiled = compile_search(request.get("SearchExpression"))
    tokens, token = ctx.services.identity.page_tokens, request.get("NextToken")
    page = await ctx.services.jobs.search(
        compiled.matches,
        names=None if compiled.names is None else sorted(compiled.names),
        sort_by=sort_by,
        descending=(request.get("SortOrder") or "Descending") == "Descending",
        limit=request.get("MaxResults") or 10,
        cursor=tokens.read("Search", request, token) if token else None,
        reach=_seen(ctx),
    )
    response: Request = {"Results": [{"TrainingJob": job} for job in page.jobs]}
    if page.cursor is not None:
        response["NextToken"] = tokens.issue("Search", request, page.cursor)
    return response


async def add_tags(ctx: Context, request: Request) -> Request:
    _accept(ctx, request)
    return {"Tags": await ctx.services.jobs.add_tags(request["ResourceArn"], request["Tags"], _changed(ctx))}


async def list_tags(ctx: Context, request: Request) -> Request:
    _accept(ctx, request)
    tokens, token = ctx.services.identity.page_tokens, request.get("NextToken")
    after = tokens.read("ListTags", request, token)[0] if token else None
    limit = request.get("MaxResults") or _TAG_PAGE
    tags = await ctx.services.jobs.list_tags(request["ResourceArn"], after, limit + 1, _seen(ctx))
    response: Request = {"Tags": tags[:limit]}
    if len(tags) > limit:
        response["NextToken"] = tokens.issue("ListTags", request, [tags[limit - 1]["Key"]])
    return response


async def delete_tags(ctx: Context, request: Request) -> Request:
    _accept(ctx, request)
    await ctx.services.jobs.delete_tags(request["ResourceArn"], request["TagKeys"], _changed(ctx))
    return {}


def _seen(ctx: Context) -> Reach:
    return to_see(ctx.principal, ctx.services.settings)


def _changed(ctx: Context) -> Reach:
    return to_change(ctx.principal, ctx.services.settings, f"sagemaker:{ctx.operation}")


def _accept(ctx: Context, request: Request) -> list[str]:
    """What the model does not say; the notices that follow from it."""
    strict = ctx.services.settings.strict_members
    return validation.accept(ctx.operation, request, ctx.unknown_members, strict=strict)


_ALL: dict[str, Operation] = {
    "AddTags": add_tags,
    "CreateTrainingJob": create_training_job,
    "DeleteTags": delete_tags,
    "DeleteTrainingJob": delete_training_job,
    "DescribeTrainingJob": describe_training_job,
    "ListTags": list_tags,
    "ListTrainingJobs": list_training_jobs,
    "Search": search,
    "StopTrainingJob": stop_training_job,
    "UpdateTrainingJob": update_training_job,
}
OPERATIONS: Operations = _ALL
