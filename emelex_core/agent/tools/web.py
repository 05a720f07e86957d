"""web_fetch: the text of one page. It is not among the tools unless somebody puts it there.

The module owns these invariants:

- Addresses of this machine and of private networks are refused unless allowed, for the first address and for every
  redirect. A name is looked up once, and the connection goes to the address that was checked.
- Nothing of the environment is used: no proxy, no netrc, no cookie, no key.
- An answer is bounded in size and time, is not compressed, and is text.
- Each call needs approval: an address tells another machine something.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from emelex_core import limits
from emelex_core.agent.calls import Arguments, Effect, ToolContext, ToolOutcome
from emelex_core.agent.tools.typed import TypedTool
from emelex_core.agent.waiting import unless_cancelled
from emelex_core.agent.wording import shortened, visible
from emelex_core.errors import Cancelled, ToolError

if TYPE_CHECKING:
    import httpx

PAGE_BYTES_MAX: Final = 2 * limits.MIB
REDIRECTS_MAX: Final = 5
SECONDS_MAX: Final = 30.0
URL_MAX: Final = 2_048

_TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")
_REDIRECTS: Final = {301, 302, 303, 307, 308}
_SILENT: Final = {"script", "style", "noscript", "template", "svg"}
_BLOCKS: Final = {"p", "br", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "section", "article"}


class WebFetchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What web_fetch is called with."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=URL_MAX, description="an http or https address")]


class WebFetch(TypedTool[WebFetchArguments]):
    """The text behind an address."""

    name: ClassVar[str] = "web_fetch"
    description: ClassVar[str] = "Fetch a page from the web and answer its text. Private addresses are refused."
    effect = Effect.READS
    shape = WebFetchArguments

    def __init__(self, *, private_allowed: bool = False) -> None:
        self._private_allowed = private_allowed

    @property
    def settings(self) -> Mapping[str, Any]:
        """What binds it beside its declaration: a Session's snapshot holds it as authority."""
        return {"private_allowed": self._private_allowed}

    def preview(self, arguments: Arguments) -> str:
        """The address."""
        return str(arguments["url"])

    def careful(self, arguments: WebFetchArguments) -> str | None:
        """Always: the address itself is sent away."""
        return "it asks another machine for this address"

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        """Fetch within bounds of time and size (`Tool.run`)."""
        typed = self.read(arguments)
        if not context.approved:
            raise ToolError("this needs approval, and nobody approved it")
        try:
            async with asyncio.timeout(SECONDS_MAX):
                page = await unless_cancelled(self._fetch(typed.url), context.cancel, what="the fetch")
        except TimeoutError:
            raise ToolError(f"no whole answer came within {SECONDS_MAX:g} seconds") from None
        except Cancelled:
            raise ToolError("the fetch was cancelled") from None
        heading = f"[{page.status} {visible(page.url)}, {visible(page.media_type)}]"
        text = f"{heading}\n{page.text}"
        return ToolOutcome(text=shortened(text, context.output_bytes_max), is_error=page.status >= 400)

    async def _fetch(self, url: str) -> _Page:
        import httpx

        timeout = httpx.Timeout(SECONDS_MAX)
        try:
            async with httpx.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False) as client:
                for _ in range(REDIRECTS_MAX + 1):
                    target = _checked(url)
                    address = await self._address(target.host, target.port or (443 if target.scheme == "https" else 80))
                    page, following = await _ask(client, target, address)
                    if following is None:
                        return page
                    url = str(target.join(following))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise ToolError(f"{visible(url)}: {type(error).__name__}: {visible(str(error))}") from None
        raise ToolError(f"it was redirected more than {REDIRECTS_MAX} times")

    async def _address(self, host: str, port: int) -> str:
        """Look a name up and return an address that may be asked; all of its addresses have to be allowed."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ToolError(f"{visible(host)}: there is no such host") from None
        addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
        for address in addresses:
            if not self._private_allowed and not is_public(address):
                raise ToolError(f"{visible(host)} is {address}, which is not a public address")
        if not addresses:
            raise ToolError(f"{visible(host)}: there is no such host")
        return addresses[0]


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, looking through the forms that wrap an IPv4 address."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        wrapped = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if wrapped is None and parsed in _NAT64:
            wrapped = ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF)
        if wrapped is not None:
            return wrapped.is_global and not wrapped.is_multicast
    return parsed.is_global and not parsed.is_multicast


_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    url: str
    status: int
    media_type: str
    text: str


def _checked(url: str) -> httpx.URL:
    import httpx

    target = httpx.URL(url)
    if target.scheme not in {"http", "https"} or not target.host:
        raise ToolError(f"{visible(url)} is not an http or https address")
    if target.userinfo:
        raise ToolError("an address with a user or password is not fetched")
    return target


async def _ask(client: httpx.AsyncClient, target: httpx.URL, address: str) -> tuple[_Page, str | None]:
    """Ask the address that was checked, under the name that was asked for; return the page, or where it went."""
    headers = {
        "Host": target.netloc.decode("ascii"),
        "Accept": "text/html, text/plain, application/json;q=0.9, text/*;q=0.8",
        "Accept-Encoding": "identity",
        "User-Agent": "emelex-memory",
    }
    request = client.build_request(
        "GET",
        target.copy_with(host=address, fragment=None),
        headers=headers,
        # The certificate is checked against the name, not against the address.
        extensions={"sni_hostname": target.host},
    )
    response = await client.send(request, stream=True)
    try:
        following = response.headers.get("location")
        if response.status_code in _REDIRECTS and following:
            return _Page(url=str(target), status=response.status_code, media_type="", text=""), following
        media_type = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
        if not media_type.startswith(_TEXTUAL):
            raise ToolError(f"{visible(str(target))} is {visible(media_type)}, not text")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise ToolError(f"{visible(str(target))} is compressed, although that was not asked for")
        text = _text(await _body(response), response.charset_encoding)
    finally:
        await response.aclose()
    shown = _plain(text) if media_type in {"text/html", "application/xhtml+xml"} else text
    return _Page(url=str(target), status=response.status_code, media_type=media_type, text=shown), None


async def _body(response: httpx.Response) -> bytes:
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > PAGE_BYTES_MAX:
            raise ToolError(f"the page has more than {PAGE_BYTES_MAX} bytes")
    return bytes(data)


def _text(data: bytes, charset: str | None) -> str:
    try:
        text = data.decode(charset or "utf-8", "replace")
    except LookupError:
        text = data.decode("utf-8", "replace")
    if "\0" in text:
        raise ToolError("the page holds NUL characters: it is no text")
    replaced = "[characters that could not be read are shown as \ufffd]\n" if "\ufffd" in text else ""
    return f"{replaced}{text}".encode("utf-8", "replace").decode("utf-8")


def _plain(page: str) -> str:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    lines = ("".join(reader.words)).split("\n")
    kept = [" ".join(line.split()) for line in lines]
    return "\n".join(line for line in kept if line)


class _Reader(HTMLParser):
    """Collects the words of a page, with a line for each block and the target behind each link."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self._silent = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        if tag in _BLOCKS:
            self.words.append("\n")
        if tag == "a":
            self._links.append(str(dict(attrs).get("href") or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT and self._silent:
            self._silent -= 1
        if tag in _BLOCKS:
            self.words.append("\n")
        if tag == "a" and self._links:
            target = self._links.pop()
            if target.startswith(("http://", "https://", "/")):
                self.words.append(f" ({target})")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words.append(data.replace("\n", " "))
