"""Which addresses connectors may reach, in every spelling known from attacks."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.connectors.contract import AddressNotAllowed, ConnectorError
from appliance.connectors.egress import Egress
from appliance.connectors.network.addresses import is_public, parse_address, parse_allow
from appliance.core.errors import ConfigInvalid

FORBIDDEN = [
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "2130706433",
    "0177.0.0.1",
    "0.0.0.0",
    "0",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.9",
    "168.63.129.16",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "localhost",
    "::1",
    "::",
    "::127.0.0.1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1",
    "64:ff9b:1::808:808",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2002:a9fe:a9fe::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "3fff::1",
    "fd00:ec2::254",
    "fc00::1",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "5f00::1",
    "100::1",
]
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "2606:4700:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "192.31.196.1",
]


@pytest.mark.parametrize("host", FORBIDDEN)
def test_a_forbidden_address_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises((AddressNotAllowed, ConnectorError)) as caught:
        Egress().addresses(host, 80, 5)
    assert caught.value.outcome == "not_done"
    # What the platform's resolver makes of a spelling is checked too, not only the spelling.
    if (address := parse_address(host)) is not None:
        assert isinstance(caught.value, AddressNotAllowed)
        assert not is_public(address)


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost"])
def test_spellings_only_the_resolver_understands_are_checked_by_address(host: str) -> None:
    assert socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
    with pytest.raises(AddressNotAllowed):
        Egress().addresses(host, 80, 5)


@pytest.mark.parametrize("host", PUBLIC)
def test_the_public_internet_is_open(host: str) -> None:
    assert Egress().addresses(host, 443, 5) == [str(parse_address(host))]


@given(st.ip_addresses(v=4))
def test_an_address_is_equally_public_in_all_its_ipv6_forms(address: object) -> None:
    plain = parse_address(str(address))
    mapped, nat64 = parse_address(f"::ffff:{address}"), parse_address(f"64:ff9b::{address}")
    assert plain is not None
    assert mapped is not None
    assert nat64 is not None
    assert is_public(plain) == is_public(mapped) == is_public(nat64)


def test_a_zone_never_makes_an_address_public() -> None:
    with pytest.raises(AddressNotAllowed):
        Egress(resolver=lambda _host, _port: ["2606:4700:4700::1111%lo"]).addresses("zoned.example", 80, 5)


@pytest.mark.parametrize(
    ("entry", "host", "port", "opened"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("127.0.0.1:8080", "127.0.0.1", 8081, False),
        ("127.0.0.1:8080", "127.0.0.2", 8080, False),
        ("127.0.0.1:8080", "::ffff:127.0.0.1", 8080, True),
        ("10.0.0.0/8", "10.9.8.7", 22, True),
        ("10.0.0.0/8", "11.0.0.1", 22, True),
        ("10.0.0.0/8", "192.168.0.1", 22, False),
        ("10.0.0.0/8:443", "10.9.8.7", 22, False),
        ("[fd00::1]:443", "fd00::1", 443, True),
        ("[fd00::1]:443", "fd00::1", 80, False),
        ("fd00::/8", "fd12::1", 80, True),
    ],
)
def test_the_operators_list_allows_only_its_entries(entry: str, host: str, port: int, opened: bool) -> None:
    egress = Egress.of([entry])
    if opened:
        assert egress.addresses(host, port, 5)
    else:
        with pytest.raises(AddressNotAllowed):
            egress.addresses(host, port, 5)


def test_a_host_rule_opens_that_name_only_whatever_it_resolves_to() -> None:
    egress = Egress(parse_allow(["erp.internal:443"]), resolver=lambda _host, _port: ["10.1.2.3"])
    assert egress.addresses("ERP.internal.", 443, 5) == ["10.1.2.3"]
    for host, port in (("erp.internal", 80), ("other.internal", 443), ("10.1.2.3", 443)):
        with pytest.raises(AddressNotAllowed):
            egress.addresses(host, port, 5)


def test_a_name_with_good_and_bad_addresses_leads_only_to_the_good_ones() -> None:
    egress = Egress(resolver=lambda _host, _port: ["127.0.0.1", "8.8.8.8", "::1"])
    assert egress.addresses("mixed.example", 80, 5) == ["8.8.8.8"]


@pytest.mark.parametrize("entry", ["", "erp internal", "http://erp", "10.0.0.0/40", "erp:0", "erp:70000", "1.2.3", "a..b", "*.x"])
def test_an_unreadable_entry_is_named(entry: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"egress\.allow"):
        Egress.of([entry])
    with pytest.raises(ValueError, match=r"is not a host|a port lies"):
        parse_allow([entry])
