"""`LogStore`: the public face of the log lines over one logs database.

Invariants: a line is stored exactly once per (attempt, source, number) and is readable, by every method here, when
`append` has returned; the ingest process alone appends, while the api process makes, reads and removes streams.
"""

from collections.abc import AsyncIterator, Sequence

from trainshed_service.clock import Clock, SystemClock
from trainshed_service.logs import append, finding, pages, search, streams, tail, window
from trainshed_service.logs.pages import Page
from trainshed_service.logs.pattern import compile_pattern
from trainshed_service.logs.search import FoundPage
from trainshed_service.logs.streams import SourceInfo, StreamInfo
from trainshed_service.logs.tail import TailLine, TailPage
from trainshed_service.logs.window import Range, Window
from trainshed_service.store import Database
from trainshed_worker.protocol import LogBatch

LOG_GROUP = "/aws/sagemaker/TrainingJobs"


class LogStore:
    """Errors: see `trainshed_service.logs.errors`. All times are epoch milliseconds unless they say otherwise."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    async def ensure_streams(self, job_name: str, names: Sequence[str]) -> None:
        """Make the streams `<job>/algo-N-<number>` that are not there yet. ValueError: another form of name."""
        created_at = self._clock.now()
        wanted = list(names)
        await self._database.write(lambda session: streams.ensure(session, job_name, wanted, created_at))

    async def append(self, batch: LogBatch, *, stream_epoch: int | None = None) -> int:
        """Store what is new; return the first number not yet stored. An empty batch only says that the host lives.

        `stream_epoch`: the number that ends the stream names of the batch's attempt; null: a host's newest stream.
        """
        now_ms = self._now_ms()
        return await self._database.write(lambda session: append.append_batch(session, batch, now_ms, stream_epoch))

    async def describe_streams(
        self,
        *,
        prefix: str | None = None,
        by_time: bool = False,
        descending: bool = False,
        limit: int | None = None,
        token: str | None = None,
    ) -> tuple[list[StreamInfo], str | None]:
        """One page and the next token; all streams at once for the prefix `<job>/`."""
        return await self._database.read(
            lambda session: streams.describe(
                session, prefix=prefix, by_time=by_time, descending=descending, limit=limit, token=token
            )
        )

    async def job_streams(self, job_name: str) -> list[StreamInfo]:
        return await self._database.read(
            lambda session: [StreamInfo.of(row) for row in streams.of_job(session, job_name)]
        )

    async def sources(self, job_name: str) -> list[SourceInfo]:
        """What each host of each attempt has shipped, and when it was heard of last."""
        return await self._database.read(lambda session: streams.sources(session, job_name))

    async def get_events(
        self,
        stream: str,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        token: str | None = None,
        limit: int | None = None,
        from_head: bool = False,
    ) -> Page:
        """One page of a stream with both tokens; `start_ms` is included, `end_ms` is not."""
        return await self._database.read(
            lambda session: pages.get_page(
                session, stream, start_ms=start_ms, end_ms=end_ms, token=token, limit=limit, from_head=from_head
            )
        )

    async def filter_events(
        self,
        *,
        pattern: str | None = None,
        names: Sequence[str] | None = None,
        prefix: str | None = None,
        start_ms: int | None = None,
        end_ms: int | None = None,
        token: str | None = None,
        limit: int | None = None,
    ) -> FoundPage:
        """One page of the lines that match, over all streams or those named; more where `token` is not null."""
        matches = compile_pattern(pattern) if pattern else None
        return await self._database.read(
            lambda session: search.filter_lines(
                session,
                matches=matches,
                names=names,
                prefix=prefix,
                start_ms=start_ms,
                end_ms=end_ms,
                token=token,
                limit=limit,
            )
        )

    async def tail(
        self, job_name: str, cursor: str | None = None, *, limit: int = 1_000, hosts: Sequence[str] | None = None
    ) -> TailPage:
        """The job's lines of all hosts behind `cursor`. Go on with the page's cursor; the same `hosts` each time."""
        return await self._database.read(lambda session: tail.read_tail(session, job_name, cursor, limit, hosts))

    async def window(self, job_name: str, within: Range, offset: int, limit: int, at: str | None = None) -> Window:
        """Lines by their place in a range of the job's log; `at` (`algo-N-<number>:<line>`) is looked up in it."""
        return await self._database.read(
            lambda session: window.read_window(session, job_name, within, offset, limit, at)
        )

    async def find(
        self, job_name: str, within: Range, matches: finding.Matches, offset: int, limit: int, context: int
    ) -> finding.Found:
        """The lines of a range that match, with those around them, as far as one call looks."""
        return await self._database.read(
            lambda session: finding.find(session, job_name, within, matches, offset, limit, context)
        )

    async def download(self, job_name: str, *, hosts: Sequence[str] | None = None) -> AsyncIterator[TailLine]:
        """Every line that the job has now, of all hosts or some, ordered by time; memory is bounded by a page."""
        cursor = None
        while True:
            page = await self.tail(job_name, cursor, limit=pages.MAX_EVENTS, hosts=hosts)
            for line in page.lines:
                yield line
            if page.at_end:
                return
            cursor = page.cursor

    async def delete_job(self, job_name: str) -> None:
        """Remove all lines and streams of the job."""
        await self._database.write(lambda session: streams.remove(session, job_name))
