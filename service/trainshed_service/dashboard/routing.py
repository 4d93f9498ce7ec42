"""Which requests on the main port are the dashboard's. The AWS APIs and S3 live on the same port and the same paths.

The rule: a request is the dashboard's if it is a GET or HEAD of one of `PAGES`, or a POST of a form to one of `FORMS`,
*and* nothing in it says that it comes from an AWS client: no Authorization header, no `x-amz-*` or `amz-sdk-*` header,
no query parameter of a signature (`X-Amz-…`, `AWSAccessKeyId`, `Signature`) or of an API call (`Action`).

So a bucket may be called `jobs`, `nodes`, `static` or `login`: every request for its objects is signed, in a header or
in the query, hence S3's. What the dashboard takes from S3 is only what S3 refuses in any case: requests of nobody.
"""

from __future__ import annotations

import re

from trainshed_service.wire.http import Scope

NAME = r"[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62}"
NODE = r"[A-Za-z0-9](?:-*[A-Za-z0-9]){0,79}"
PAGES = re.compile(
    rf"/|/login|/queue|/nodes(?:/{NODE})?|/pools(?:/{NAME})?|/new-job|/favicon\.ico"
    rf"|/jobs|/jobs/{NAME}(?:/log|/files|/download)?|/static/.+"
)
FORMS = re.compile(
    rf"/login|/logout|/new-job(?:/check)?|/jobs/stop|/jobs/{NAME}/stop"
    rf"|/nodes/{NODE}/(?:un)?drain|/pools/{NAME}/(?:extend|end)"
)
_AMAZON_HEADERS = (b"x-amz-", b"amz-sdk-")
_SIGNED_QUERY = re.compile(rb"(?:^|&)(?:x-amz-[a-z-]+|awsaccesskeyid|signature|action)=", re.IGNORECASE)
_FORM = b"application/x-www-form-urlencoded"


def claims(scope: Scope) -> bool:
    """Whether the dashboard answers this request."""
    path: str = scope["path"]
    if scope["method"] in ("GET", "HEAD"):
        if not PAGES.fullmatch(path):
            return False
    elif scope["method"] != "POST" or not FORMS.fullmatch(path):
        return False
    is_form = False
    for name, value in scope["headers"]:
        if name == b"authorization" or name.startswith(_AMAZON_HEADERS):
            return False
        is_form = is_form or (name == b"content-type" and value.startswith(_FORM))
    if scope["method"] == "POST" and not is_form:
        return False
    return not _SIGNED_QUERY.search(scope["query_string"])


def safe_target(path: str | None) -> str:
    """Where to go after the login: a page of ours, whatever the link said; nothing else of the web."""
    bare = (path or "").partition("?")[0]
    is_page = PAGES.fullmatch(bare) and bare not in ("/", "/login", "/favicon.ico") and not bare.startswith("/static/")
    return path if path and is_page and path.isprintable() else "/jobs"
