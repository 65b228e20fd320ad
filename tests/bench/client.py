"""The load client of `executions`: a process of its own, one keep-alive connection per thread."""

import http.client
import json
import sys
import threading
import time


def main(port: int, path: str, headers: dict[str, str], concurrency: int, count: int) -> None:
    """POST `count` times over `concurrency` connections; prints [seconds, [latency in ms, …]]."""
    latencies: list[float] = []
    left = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            with lock:
                if next(left, None) is None:
                    return
            began = time.perf_counter()
            connection.request("POST", path, '{"n": 1}', headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {body[:300]!r}")
            latencies.append((time.perf_counter() - began) * 1000)

    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump([time.perf_counter() - began, latencies], sys.stdout)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
