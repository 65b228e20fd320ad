"""A browser without a screen: cookies per host, fetch metadata, redirects from host to host."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode, urljoin, urlsplit

import httpx

from appliance.testing.running import Running

MOST_REDIRECTS = 8


@dataclass
class Browser:
    """One browser; `get` and `post` follow redirects and return the last response, whose address is in `url`.

    `set_cookies` has every Set-Cookie line so far."""

    running: Running
    cookies: dict[str, dict[str, str]] = field(default_factory=dict)
    set_cookies: list[str] = field(default_factory=list)
    url: str = ""

    def at(self, host: str, path: str) -> str:
        """An address of this appliance."""
        name = f"{host}." if host else ""
        return f"http://{name}localhost{self.running.config.port_suffix}{path}"

    def get(self, url: str, **headers: str) -> httpx.Response:
        return self._go("GET", url, None, {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", **headers})

    def post(self, url: str, form: Mapping[str, str | list[str]], **headers: str) -> httpx.Response:
        return self._go("POST", url, urlencode(form, doseq=True), {"Sec-Fetch-Site": "same-origin", **headers})

    def upload(self, url: str, file: tuple[str, bytes], form: Mapping[str, str] | None = None, **headers: str) -> httpx.Response:
        """Submit a form with one file in the field `file`."""
        mark = "the-end-of-a-part"
        lines = [f'--{mark}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in (form or {}).items()]
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{file[0]}"\r\n\r\n'
        body = "".join(lines).encode() + head.encode() + file[1] + f"\r\n--{mark}--\r\n".encode()
        sent = {"Sec-Fetch-Site": "same-origin", "Content-Type": f"multipart/form-data; boundary={mark}", **headers}
        return self._go("POST", url, body, sent)

    def _go(self, method: str, url: str, body: str | bytes | None, headers: Mapping[str, str]) -> httpx.Response:
        for _ in range(MOST_REDIRECTS):
            response = self.send(method, url, body, headers)
            self.url = url
            if response.status_code != 303:
                return response
            method, url, body = "GET", urljoin(url, response.headers["Location"]), None
            headers = {name: value for name, value in headers.items() if name != "Content-Type"}
        raise AssertionError(f"more than {MOST_REDIRECTS} redirects, the last to {url}")

    def send(self, method: str, url: str, body: str | bytes | None, headers: Mapping[str, str]) -> httpx.Response:
        """One request with the cookies of its host; redirects are not followed."""
        parts = urlsplit(url)
        jar = self.cookies.setdefault(parts.netloc, {})
        sent = {**headers, "Host": parts.netloc}
        if jar:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
        if body is not None:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        target = f"http://127.0.0.1:{self.running.config.server.port}{parts.path}{'?' + parts.query if parts.query else ''}"
        with httpx.Client(trust_env=False, timeout=60) as client:
            response = client.request(method, target, content=body, headers=sent)
        self.set_cookies += response.headers.get_list("set-cookie")
        for line in response.headers.get_list("set-cookie"):
            name, _, rest = line.partition("=")
            value = rest.partition(";")[0].strip('"')
            if "max-age=0" in line.lower():
                jar.pop(name, None)
            else:
                jar[name] = value
        return response

    def sign_in(self, login: str, password: str, tenant: str) -> httpx.Response:
        """Open a tenant's console and complete the sign-in that it redirects to."""
        self.get(self.at(tenant, "/console/"))
        return self.post(self.url, {"login": login, "password": password})
