"""The live page from Python: `bqrl.serve`."""

from __future__ import annotations

from os import PathLike
from types import TracebackType

from . import _bqrl


class Server:
    """A live page that answers until it is closed. Also a context manager."""

    def __init__(self, directory: str | PathLike[str], port: int, host: str) -> None:
        self._server = _bqrl.PageServer(directory, port, host)

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        return self._server.url

    def close(self) -> None:
        """Stops answering. Closing twice is fine."""
        self._server.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<bqrl live page at {self.url}>"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank" rel="noopener">bqrl live page at {self.url}</a>'


def serve(directory: str | PathLike[str] = ".", *, port: int = 0, host: str = "127.0.0.1") -> Server:
    """Serves the live page over the runs and MDP files below a directory, and returns at once.

    The page shows runs while they learn, and the risk dial of every problem. It only reads.

    Args:
        directory: where to look for runs.
        port: from 0 to 65535; 0 takes any free one.
        host: the address to listen on. Any but a loopback address lets other machines read the directory.
    """
    return Server(directory, port, host)
