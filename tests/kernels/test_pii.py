# SPDX-License-Identifier: Apache-2.0
"""What is found in texts and what comes in its place; the compiled scan misses nothing that the finders find."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.pii import kinds as pii_kinds
from curator_df.kernels.pii.kinds import KINDS, finders, is_card_number, is_iban
from curator_df.ops.cleaning.redaction import RedactionSettings, find_in_text, redact_texts
from tests.examples import examples

PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"
    + "MIIEowIBAAKCAQEA\n" * 9
    + "-----END RSA PRIVATE KEY-----"
)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
FOUND = {
    "email": [
        "me@example.org", "Jürgen.M+x@mail.example.co.uk", "x@bücher.example", "a_b%c@xn--bcher-kva.xn--p1ai", "a@b.рф",
    ],
    "ip": ["10.1.2.3", "8.8.8.8", "249.249.249.249", "2001:db8::1", "fe80::1ff:fe23:4567:890a", "2001:db8::"],
    "phone": [
        "+49 30 1234567", "+1 (555) 234-5678", "(555) 234-5678", "555-234-5678", "1-555-234-5678", "+442079460958",
        "+33\u00a01\u00a023\u00a045\u00a067\u00a089", "555.234.5678",
    ],
    "credit_card": ["4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111", "378282246310005", "3782 822463 10005"],
    "iban":["GB82 WEST 1234 5698 7654 32", "DE89370400440532013000", "NO93 8601 1117 947", "MT84MALT011000012345MTLCAST001S"],
    "ssn": ["078-05-1120", "123-45-6789"],
    "key": [
        "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9, "glpat-" + "aB3_-" * 4, "xoxb-123456789012-abcdefghij", JWT, PEM,
        "sk-proj-" + "aB3_-" * 6, "AIza" + "aB3_-" * 7, "hf_" + "aBcDeF" * 6, "SG." + "a1" * 11 + "." + "b2" * 22,
        "sk_live_" + "0aB" * 8,
    ],
}  # fmt: skip
LABELED = {
    "phone": [("Tel.: ", "030 1234567"), ("FAX:", "(030) 123-4567"), ("phone no. ", "01 23 45 67 89")],
    "ssn": [("SSN: ", "123456789"), ("Social Security number: ", "123 45 6789")],
    "key": [("api_key = '", "abcd1234efgh5678ijkl9012"), ("password: ", "correct-horse-battery-staple-9"),
            ("Authorization: Bearer ", "abcdefghij0123456789==")],
}  # fmt: skip
NOTHING = [
    "not@home", "@example.org", "me@", "a@b", "me@@example.org", "a@b.c",
    "256.1.1.1", "1.2.3", "v1.2.3.4", "1.2.3.4.5", "127.0.0.1", "0.0.0.0", "255.255.255.0", "01.02.03.04", "12:30:45",
    "std::dec", "::1", "00:1b:44:11:3a:b7", "a[1::2]",
    "1990-1995", "12345678", "1,234,567,890", "2024-01-02 10:11:12", "100 200 3000", "555-1234", "3.14159265358979",
    "4111111111111112", "1234 5678 9012 3456", "0000000000000000", "4111 1111 11111111",
    "GB83 WEST 1234 5698 7654 32", "GB82 WEST 1234 5698 7654", "XX82123412341234", "GB82WEST12345698765432X",
    "000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "123-45-0000", "1123-45-67890",
    "AKIAIOSFODNN7EXAMPL", "token = get_token_from_the_environment()", "password: short1", "sk-learn is a library",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxx", "-----BEGIN PUBLIC KEY-----", "https://example.org/a/very/long/path/of/a/page.html",
    "a-long-name-of-some-file-in-a-folder",
]  # fmt: skip
WIDER = {
    "email": [
        "jane.roe@example.org", "user+tag@sub.example.co.uk", "JANE@EXAMPLE.ORG", "jane_@example.org", "o'neil@example.org",
        "brian.o'neil@example.org", "info@163.com", "jane@1and1.example", "info@2x.com", "jane@v2.example.org",
        "git@vger.kernel.org",
        "x@a.museum", "firstname-lastname@a-b.example.info", "jane@münchen.example", "openssh@example.com", "rs@example.rs",
        "a@py.md",
    ],
    "ip": [
        "8.8.8.8", "1.1.1.1", "203.0.113.77", "198.51.100.1", "12.34.56.78", "1.2.3.200", "10.0.0.1", "172.16.0.1",
        "192.168.1.1",
        "2001:db8:0:0:1:0:0:1", "2001:0db8:0000:0000:0000:ff00:0042:8329", "2001:DB8::FF00:42:8329", "2001:db8::192.0.2.1",
        "2001:db8:1:2:3:4:192.0.2.1", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "fd12:3456:789a:1::1", "fe80::1",
        "2001:4860:4860::8888",
    ],
    "credit_card": [
        "4111.1111.1111.1111", "4111\u00a01111\u00a01111\u00a01111", "4111\u20111111\u20111111\u20111111", "30569309025904",
        "6011111111111117", "6200000000000005", "3530111333300000", "2223003122003222", "5555555555554444",
    ],
    "iban": [
        "DE89-3704-0044-0532-0130-00", "DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000",
        "FR14 2004 1010 0505 0001 3M02 606",
        "ES91 2100 0418 4502 0005 1332", "IT60 X054 2811 1010 0000 0123 456", "NL91 ABNA 0417 1643 00",
        "CH93 0076 2011 6238 5295 7",
        "BE68 5390 0754 7034", "AT61 1904 3002 3457 3201", "PL61 1090 1014 0000 0712 1981 2874",
        "SE45 5000 0000 0583 9825 7466",
        "SA03 8000 0000 6080 1016 7519", "BR18 0036 0305 0000 1000 9795 493C 1", "TR33 0006 1005 1978 6457 8413 26",
    ],
    "ssn": ["219-09-9999", "001-01-0001", "899-99-9999"],
}  # fmt: skip
ANNOUNCED = [
    "IP: <1.2.3.4>", "ip address <1.2.3.4>", "client_ip=<5.6.7.8>", "http://<1.2.3.4>/", "NameVirtualHost <1.2.3.4>",
    "<1.2.3.4>:8080",
    "<2.2.0.0>/16", "gatekeeper.example.com [<16.1.0.2>]", "ssh root@<5.6.7.8>", "ping <1.0.0.2>",
    "node1/<10.0.0.5>", "Node/<10.0.0.5>:9042", "Host/<10.1.2.3>", "IP/<10.1.2.3>", "http://<12.34.56.78>/a",
    "Sub/Net/<12.34.56.78>",
    "card <4222222222222>", "Visa: <4222222222222>", "credit card no. <4222222222222>", "信用卡号：<4222222222222>",
    "card_number=<4111111111111111>", "https://shop.example/pay?card=<4111111111111111>",
]  # fmt: skip
NEIGHBORS = [
    # versions, sections and object identifiers beside IPv4
    "released 8.8.19.91 today", "2.7.4.1 Scope of the clause", "version 10.0.0.1", "Version: 12.34.56.78", "v10.0.0.1-rc1",
    "10.0.0.1-rc1",
    "10.0.0.1-SNAPSHOT", "12.34.56.78-beta2", "10.20.30.40+build5", "Firefox 2.0.0.4", "Gecko/1.8.1.5", "§ 15.12.4.2",
    "§15.12.4.200",
    "Section 10.2.3.4", "section-3.2.2.2", "see clause 4.2.1.3", "1.3.6.1", "1.3.6.1.4.1", "2.5.29.15",
    "xulrunner-1.9.0.17.tar.gz",
    "Chrome/100.0.48.127", "(SamsungBrowser/12.1.1.36 Mobile)", "FBAV/45.0.0.44",
    "releases/1.8.0.4/sdk", '"1.0.1.7"', "версия 10.1.2.3", "バージョン 10.1.2.3", "<td>1.7.7.1</td>", "1.2.3.4", "256.100.50.25",
    "1.2.3.400",
    # scopes, slices and times beside IPv6
    "Feed::Add", "Face::Bad(x)", "Dead::Beef", "Cafe::Dada", "Abba::Cd", "std::a::b", "Fade::Cafe::Bead", "Feed::Add2(x)",
    "fdad::bad", "a::before",
    "li::after { }", "a[2000::5]", "x[2000::2]", "2000::/3", "fe80::/10", "2023:10:05:12:30:45:00:01", "2024:01:15 10:00:00",
    "PEP 343::",
    "3011::HIGGINS", "12:34:56:78:9a:bc", "dead:beef::1", "::1", "::",
    # files, versions and logins beside e-mail addresses
    "icon@2x.png", "icon@3x.PNG", "logo@1.5x.webp", "bg@2x.min.css", "clip@2x.mov", "pkg@1.17.21-beta.rc", "npm i pkg@1.2.3",
    "pkg@v1.2.3-rc.next",
    "lodash@4.x.latest", "react@18-beta.next", "@scope/pkg@1.0.0-alpha.beta", "jquery@3.7.1/dist/jquery.min.js",
    "hibernate@5.4.Final",
    "style@media.css", "app@next.js", "data@old.tar", "git@github.com:org/repo", "git@code.example.org:team/repo.git",
    "ssh://git@gitlab.example.org/team/repo", "foo@bar", "@jane:matrix.org", "@override", "chacha20-poly1305@openssh.com",
    "curve25519-sha256@libssh.org", "user @ example.org",
    # bar codes, identifiers and columns beside cards
    "EAN: 4026227464386", "4277293507042", "GTIN 4006381333931", "ISBN 9783161484100",
    "https://social.example/status/6572447609790524483",
    "628574680751615694", "id 625097247583547406", "https://x.example/?id=4111111111111111", "order no. 4111111111111111",
    "1000 4111 1111 1111 1111", "1748503543012345", "0.4111111111111111",
    # part numbers beside social security numbers
    "part no 429-75-3795", "item: 429-75-3795", "SKU 429-75-3795", "ISBN-10: 429-75-3795", "10.1000/429-75-3795",
    "000-12-3456",
]  # fmt: skip
each_found = pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind in FOUND for value in FOUND[kind]])


def redacted(text: str, replacement: str = "label", key: bytes = b"", kinds=KINDS) -> str:
    column = pd.Series([text], dtype="string[pyarrow]")
    return redact_texts(column, RedactionSettings(tuple(kinds), replacement, key))[0][0]


@each_found
def test_is_found_between_words_and_beside_punctuation(kind, value):
    label = f"<{kind.upper()}>"
    for before, after in (
        ("", ""),
        ("see ", " now"),
        ("(", ")"),
        ('"', '",'),
        ("see: ", "."),
        ("语 ", "。"),
        ("a\n", "\nb"),
    ):
        assert redacted(before + value + after) == before + label + after


@pytest.mark.parametrize(("kind", "label", "value"), [(kind, *pair) for kind in LABELED for pair in LABELED[kind]])
def test_is_found_after_a_word_that_announces_it(kind, label, value):
    assert redacted(f"a {label}{value}.") == f"a {label}<{kind.upper()}>."
    assert kind not in {found for _, _, found in find_in_text(f"a {value}.", finders())}


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind in WIDER for value in WIDER[kind]])
def test_is_found_in_every_spelling_of_its_kind(kind, value):
    assert redacted(f"see {value}, now") == f"see <{kind.upper()}>, now"


@pytest.mark.parametrize("text", ANNOUNCED)
def test_what_is_around_a_value_speaks_for_it(text):
    value = text[text.index("<") + 1 : text.index(">")]
    assert re.fullmatch(r".*<(IP|CREDIT_CARD)>.*", redacted(text.replace(f"<{value}>", value)))


@pytest.mark.parametrize("text", NEIGHBORS)
def test_neighbors_of_a_kind_stay(text):
    for before, after in (("", ""), ("a ", " b"), ("(", ")"), ("语 ", "。"), ("- ", ";")):
        assert redacted(before + text + after) == before + text + after


def test_cards_one_after_another_are_found_and_columns_of_numbers_stay():
    assert redacted("4111 1111 1111 1111 5555 5555 5555 4444") == "<CREDIT_CARD> <CREDIT_CARD>"
    assert redacted("1234 4111 1111 1111 1111") == "1234 4111 1111 1111 1111"


@pytest.mark.parametrize("text", NOTHING)
def test_what_only_looks_like_it_stays(text):
    assert redacted(f"a {text} b") == f"a {text} b"


def test_a_private_key_in_one_line_is_found():
    assert redacted("key: " + PEM.replace("\n", "\\n") + " b") == "key: <KEY> b"


def test_where_two_overlap_the_first_kind_wins():
    assert redacted("ghp_" + "a1B2" * 9 + "@example.org") == "<KEY>@example.org"
    assert redacted("GB82WEST12345698765432 and 4111111111111111") == "<IBAN> and <CREDIT_CARD>"
    assert redacted("call 4111 1111 1111 1111", kinds=("phone",)) == "call 4111 1111 1111 1111"
    assert redacted("+4111 1111 1111 111") == "<PHONE>"


def test_spellings_of_one_value_have_one_digest_and_others_another():
    pairs = [
        ("ME@Example.org", "me@example.org"),
        ("+49 30 1234567", "+49-30-123 45 67"),
        ("4111 1111 1111 1111", "4111111111111111"),
        ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000"),
        ("2001:DB8::1", "2001:db8:0:0:0:0:0:1"),
    ]
    for one, other in pairs:
        digest = redacted(one, "hash")
        assert re.fullmatch(r"<[A-Z_]+_[0-9a-f]{16}>", digest)
        assert digest == redacted(other, "hash") != redacted(one, "hash", b"key") == redacted(other, "hash", b"key")
    assert redacted("me@example.org", "hash") != redacted("you@example.org", "hash")


def test_digests_stay_what_they_are():
    # Stored texts hold these: another scheme would be another operator.
    assert redacted("me@example.org +49 30 1234567", "hash") == "<EMAIL_d521dadfe137a4fe> <PHONE_3a665a8a0490a6bc>"
    assert redacted("me@example.org", "hash", b"secret") == "<EMAIL_b82535e2be43db72>"


def test_a_mask_is_as_long_as_what_it_hides():
    assert redacted("to Jürgen@example.org now", "mask") == "to ****************** now"


def test_counts_and_columns():
    texts = pd.Series(
        ["a@b.org, c@d.org", None, "none", "10.1.2.3 a@b.org"], dtype="string[pyarrow]", index=[3, 4, 5, 6]
    )
    changed, counts = redact_texts(texts, RedactionSettings(KINDS, "label"))
    assert [None if text is pd.NA else text for text in changed] == ["<EMAIL>, <EMAIL>", None, "none", "<IP> <EMAIL>"]
    assert counts == {"rows_changed": 2, "email": 3, "ip": 1}
    assert changed.index.equals(texts.index)
    clean, counts = redact_texts(changed, RedactionSettings(KINDS, "label"))
    assert clean is changed and counts["rows_changed"] == 0


VALUES = [value for kind in FOUND for value in FOUND[kind]] + [
    label + value for kind in LABELED for label, value in LABELED[kind]
]
PIECES = st.one_of(
    st.sampled_from(VALUES),
    st.sampled_from(NOTHING),
    st.sampled_from(
        [" ", "\n", "\r\n", ".", ", ", "@", "-", "+", ":", "(", ")", "1", "23", "a", "GB", "é", "漢", "\u00a0"]
    ),
    st.text(max_size=4),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def by_line(text: str) -> str:
    """Replace what is found in each line, without the compiled scan."""
    out, chosen = [], finders()
    for line in re.split(r"(?<=\n)", text):
        copied_to = 0
        for start, stop, kind in find_in_text(line, chosen):
            out += [line[copied_to:start], f"<{kind.upper()}>"]
            copied_to = stop
        out.append(line[copied_to:])
    return "".join(out)


@settings(max_examples=examples(600))
@given(TEXTS.filter(lambda text: "-----" not in text))
@example("1" * 300)
def test_the_scan_misses_nothing(text):
    assert redacted(text) == by_line(text)


def test_long_lines_are_cut_after_words():
    text = "words of a line a@b.org and 10.1.2.3 or +49 30 1234567 " * 9_000
    assert redacted(text) == "words of a line <EMAIL> and <IP> or <PHONE> " * 9_000
    assert redacted("4111111111111111 " * 30_000).count("<CREDIT_CARD>") >= 30_000 - 30  # no small letter to cut after


@pytest.mark.parametrize(
    "text",
    [
        "a."*500_000+"@", "a@"*500_000, "a@a."*250_000, "1 "*500_000, "1-"*500_000, "+1"*500_000, "1."*500_000,
        "12:"*330_000, "abcd:"*200_000, "GB82 "*200_000, "eyJ"*330_000, "eyJaaaaaaaa."*80_000, "password="*110_000,
        "-----BEGIN RSA PRIVATE KEY-----" * 32_000, "tel:" * 250_000, "SG." * 330_000, "a" * 1_000_000, "é@" * 300_000,
        "-eyJaaaaaaaaa" * 77_000, "sk-" * 330_000,
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_megabyte_of_anything_takes_seconds(text):
    assert len(redacted(text, "mask")) == len(text)


def test_bytes_that_are_no_utf8_go_through():
    data = b"a@b.org \xff\xfe a@b.org"
    array = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)])), pa.py_buffer(data))
    texts = pd.Series(pd.StringDtype("pyarrow").__from_arrow__(pa.chunked_array([array])))
    changed, _ = redact_texts(texts, RedactionSettings(KINDS, "label"))
    assert changed.array.__arrow_array__().chunk(0).buffers()[2].to_pybytes() == b"<EMAIL> \xff\xfe <EMAIL>"


def test_check_digits():
    assert is_card_number("378282246310005") and not is_card_number("378282246310006")
    assert not is_card_number("79927398713")  # right check digit, no issuer
    assert is_iban("DE89370400440532013000") and not is_iban("DE8937040044053201300")


LETTERS = "aB3" * 20
KEYS = [
    f"-----BEGIN RSA PRIVATE KEY-----{LETTERS}-----END RSA PRIVATE KEY-----",
    f"eyJ{LETTERS}.eyJ{LETTERS}.{LETTERS}",
    *(f"{head}{'ABCD2345' * 2}" for head in ("AKIA", "ASIA", "ABIA", "ACCA")),
    *(f"gh{kind}_{LETTERS}" for kind in "pousr"),
    *(f"xox{kind}-{LETTERS}" for kind in "abeoprs"),
    *(f"{kind}k_{stage}_{LETTERS}" for kind in "rs" for stage in ("live", "test")),
    *(f"sk-{maker}{LETTERS}" for maker in ("", "ant-", "proj-", "svcacct-", "or-")),
    *(f"{head}{LETTERS}" for head in ("github_pat_", "glpat-", "hf_", "pypi-AgE")),
    f"AIza{LETTERS[:35]}",
    f"npm_{LETTERS[:36]}",
    f"SG.{LETTERS}.{LETTERS}",
    *(
        f"{owner}{between}{what}={LETTERS}"
        for owner in ("api", "Access", "secret", "AUTH", "private", "client")
        for between in ("", "_", "-")
        for what in ("key", "Secret", "TOKEN")
    ),
    *(f"{label}: {LETTERS}" for label in ("secret", "Token", "PASSWD", "password")),
    f"Bearer {LETTERS}",
]


@pytest.mark.parametrize("key", KEYS)
def test_every_form_of_a_key_is_found_by_the_hint_that_precedes_the_search(key):
    text = f"x {key} x"
    plain = [match.span("labeled" if match["labeled"] else 0) for match in pii_kinds._KEYS.finditer(text)]
    assert plain
    assert list(finders()["key"].find(text)) == plain


def test_a_text_without_a_hint_of_a_key_is_not_searched(monkeypatch):
    monkeypatch.setattr(pii_kinds, "_KEYS", None)
    assert list(finders()["key"].find(f"see {LETTERS} and /usr/lib/{LETTERS}")) == []
