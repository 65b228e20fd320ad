"""Signatures of S3's requests: the examples that Amazon publishes with the algorithm ("Signature Version 4 for S3")."""

from datetime import UTC, datetime

import pytest
from gos_connector_files.signing import Signer, Target, encode_query

SIGNER = Signer("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1")
HOST = "examplebucket.s3.amazonaws.com"
NOW = datetime(2013, 5, 24, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("target", "further", "content", "signature"),
    [
        (
            Target("GET", HOST, "/test.txt"),
            [("Range", "bytes=0-9")],
            b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            Target("PUT", HOST, "/test%24file.text"),
            [("Date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            Target("GET", HOST, "/", [("lifecycle", "")]),
            [],
            b"",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            Target("GET", HOST, "/", [("prefix", "J"), ("max-keys", "2")]),
            [],
            b"",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get", "put", "lifecycle", "list"],
)
def test_amazons_examples_are_signed_as_published(
    target: Target, further: list[tuple[str, str]], content: bytes, signature: str
) -> None:
    sent = dict(SIGNER.headers(target, further, content, NOW))
    assert sent["authorization"].endswith(f",Signature={signature}")
    assert sent["x-amz-date"] == "20130524T000000Z"


def test_amazons_example_is_presigned_as_published() -> None:
    query = SIGNER.presign(Target("GET", HOST, "/test.txt"), 86400, NOW)
    assert query.endswith("&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


def test_a_session_token_is_signed_with_the_rest() -> None:
    signer = Signer("key", "secret", "us-east-1", "to/ken")
    sent = dict(signer.headers(Target("GET", HOST, "/"), [], b"", NOW))
    assert sent["x-amz-security-token"] == "to/ken"
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token," in sent["authorization"]
    assert "&X-Amz-Security-Token=to%2Fken&" in signer.presign(Target("GET", HOST, "/"), 1, NOW)


def test_a_query_has_one_spelling() -> None:
    assert encode_query([("b", "ü /"), ("a", "~"), ("a", "!")]) == "a=%21&a=~&b=%C3%BC%20%2F"


def test_repr_omits_the_secrets() -> None:
    assert "secret" not in repr(Signer("key", "secret-canary", "eu", "secret-token")).replace("secret_key", "")
