"""Exit 0 when the appliance in this container answers /readyz, over HTTPS or plain HTTP; for HEALTHCHECK."""

import http.client
import os
import ssl
import sys

PATIENCE = 4.0


def is_ready(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    port = int(os.environ.get("GOS_PORT", "8080"))
    # Loopback inside the container: whether we are asked is the question, not who answers.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    encrypted = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
    return 0 if is_ready(encrypted) or is_ready(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) else 1


if __name__ == "__main__":
    sys.exit(main())
