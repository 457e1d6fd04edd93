# SPDX-License-Identifier: Apache-2.0
"""Labels of a fastText model, read from its file without loading it, and those nearest to a wrong one.

See also `language_blocks`, which uses the model.
"""

from __future__ import annotations

import difflib
import functools
import mmap
import os
import re
import struct
from collections.abc import Collection, Iterable, Sequence

from curator_df.errors import ParameterError

LABEL = "__label__"
MAGIC = 793_712_314
HEADER = struct.Struct("<ii12idiii2q")
"""Header of a fastText file: magic number, version, 13 arguments, entries, words, labels, tokens, pruned words [1]_.

.. [1] https://github.com/facebookresearch/fastText/blob/v0.9.2/src/dictionary.cc (``Dictionary::save``) and ``args.cc``
"""
_ENTRY = re.compile(rb"([^\0]*)\0.{8}(.)", re.DOTALL)
"""A word or label, its count, and which of the two it is."""
IS_LABEL = b"\x01"
SHOWN = 5

# The 176 labels of lid.176 (https://fasttext.cc/docs/en/language-identification.html), those of its languages that people
# write out, each with its code of three letters and its name in ISO 639-3 (https://iso639-3.sil.org/code_tables/639/data).
# Labels of three letters that are left out are such codes themselves.
NAMES = """
af afr Afrikaans; als gsw Alemannic; am amh Amharic; an arg Aragonese; ar ara Arabic; ar arb Arabic; as asm Assamese;
ast ast Asturian; av ava Avaric; az aze Azerbaijani; az azj Azerbaijani; azb azb South Azerbaijani; ba bak Bashkir;
be bel Belarusian; bg bul Bulgarian; bn ben Bengali; bo bod Tibetan; br bre Breton; bs bos Bosnian; ca cat Catalan;
ce che Chechen; ceb ceb Cebuano; ckb ckb Central Kurdish; co cos Corsican; cs ces Czech; cv chv Chuvash; cy cym Welsh;
da dan Danish; de deu German; dv div Dhivehi; el ell Greek; en eng English; eo epo Esperanto; es spa Spanish; et est Estonian;
et ekk Estonian; eu eus Basque; fa fas Persian; fa pes Persian; fi fin Finnish; fr fra French; fy fry Western Frisian;
ga gle Irish; gd gla Scottish Gaelic; gl glg Galician; gn grn Guarani; gu guj Gujarati; gv glv Manx; he heb Hebrew;
hi hin Hindi; hr hrv Croatian; ht hat Haitian; hu hun Hungarian; hy hye Armenian; ia ina Interlingua; id ind Indonesian;
io ido Ido; is isl Icelandic; it ita Italian; ja jpn Japanese; jv jav Javanese; ka kat Georgian; kk kaz Kazakh;
km khm Khmer; kn kan Kannada; ko kor Korean; ku kur Kurdish; kv kom Komi; kw cor Cornish; ky kir Kirghiz; la lat Latin;
lb ltz Luxembourgish; li lim Limburgan; lo lao Lao; lt lit Lithuanian; lv lav Latvian; lv lvs Latvian; mg mlg Malagasy;
mk mkd Macedonian; ml mal Malayalam; mn mon Mongolian; mn khk Mongolian; mr mar Marathi; ms msa Malay; ms zsm Malay;
mt mlt Maltese; my mya Burmese; ne nep Nepali; ne npi Nepali; nl nld Dutch; nn nno Norwegian Nynorsk; no nor Norwegian;
no nob Norwegian; oc oci Occitan; or ori Oriya; or ory Oriya; os oss Ossetian; pa pan Punjabi; pl pol Polish;
pnb pnb Western Punjabi; ps pus Pashto; ps pbt Pashto; pt por Portuguese; qu que Quechua; rm roh Romansh; ro ron Romanian;
ru rus Russian; sa san Sanskrit; sc srd Sardinian; sd snd Sindhi; sh hbs Serbo-Croatian; si sin Sinhala; sk slk Slovak;
sl slv Slovenian; so som Somali; sq sqi Albanian; sq als Albanian; sr srp Serbian; su sun Sundanese; sv swe Swedish;
sw swa Swahili; sw swh Swahili; ta tam Tamil; te tel Telugu; tg tgk Tajik; th tha Thai; tk tuk Turkmen; tl tgl Tagalog;
tr tur Turkish; tt tat Tatar; ug uig Uighur; uk ukr Ukrainian; ur urd Urdu; uz uzb Uzbek; uz uzn Uzbek; vi vie Vietnamese;
vo vol Volapük; wa wln Walloon; yi yid Yiddish; yi ydd Yiddish; yo yor Yoruba; yue yue Cantonese; zh zho Chinese;
zh cmn Chinese
"""


_OTHER_CODES = {"nb": "nob"}
"""Codes of two letters that are not labels of lid.176."""
_SCRIPT = re.compile("[A-Z][a-z]{3}")


@functools.lru_cache(maxsize=4)
def labels_of(path: str, digest: str) -> tuple[str, ...]:  # noqa: ARG001 - the digest tells apart what lay there before
    """Return the labels of a fastText model, without ``__label__``; none of a file that is not one.

    Parameters
    ----------
    path : str
        The file, of which only the dictionary at its beginning is read.
    digest : str
        Of its content.
    """
    if os.path.getsize(path) < HEADER.size:
        return ()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        magic, *_, entries, _, _, _, _ = HEADER.unpack_from(content)
        if magic != MAGIC:
            return ()
        found, place = [], HEADER.size
        for _ in range(entries):
            entry = _ENTRY.match(content, place)
            if entry is None:
                return ()
            if entry[2] == IS_LABEL:
                found.append(entry[1].decode("utf-8", "replace").removeprefix(LABEL))
            place = entry.end()
    return tuple(found)


def labels_for(operator: str, model: str, wanted: Sequence[str], labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the label of a model for each of these language codes, such as ``en`` for ``EN``, ``eng`` or ``eng_Latn``.

    Raises
    ------
    ParameterError
        If the model has no label for a code, or several; the message names them, or the most similar labels.
    """
    if not labels:  # the file is of another kind, and its labels are not known
        return tuple(wanted)
    meant = [labels_meant(name, labels) for name in wanted]
    if all(len(found) == 1 for found in meant):
        return tuple(found[0] for found in meant)
    said, is_missing = [], False
    for name, found in zip(wanted, meant, strict=True):
        if len(found) > 1:
            few = "one or both" if len(found) == 2 else "one or several"
            said.append(f"{name!r} means several labels of {model}: {', '.join(map(repr, found))}. Name {few}.")
        elif not found:
            is_missing = True
            near = " or ".join(map(repr, nearest(name, labels)))
            said.append(f"{model} has no language {name!r}." + (f" Did you mean {near}?" if near else ""))
    if is_missing:
        said.append(f"The model has {len(labels)} labels, such as {', '.join(map(repr, sorted(labels)[:SHOWN]))}")
    raise ParameterError(f"{operator}: {' '.join(said).removesuffix('.')}")


def label_for(name: str, labels: Collection[str]) -> str | None:
    """Return the one label that a code of two or three letters means, with or without a script; None if it is not one label.

    Examples
    --------
    >>> label_for("EN", ["de", "en"]), label_for("eng_Latn", ["de", "en"]), label_for("de", ["eng_Latn", "deu_Latn"])
    ('en', 'en', 'deu_Latn')
    >>> label_for("als_Latn", ["als", "sq"]), label_for("zh", ["cmn_Hans", "cmn_Hant"])
    ('sq', None)
    """
    meant = labels_meant(name, labels)
    return meant[0] if len(meant) == 1 else None


def labels_meant(name: str, labels: Collection[str]) -> list[str]:
    """Return the labels that a code of two or three letters means, with or without a script.

    Labels without a script take a code with any script, but with nothing else, such as a region.

    Examples
    --------
    >>> labels_meant("zho", ["cmn_Hani"]), labels_meant("sr", ["srp_Cyrl", "srp_Latn"]), labels_meant("pt-BR", ["pt"])
    (['cmn_Hani'], ['srp_Cyrl', 'srp_Latn'], [])
    """
    if name in labels:
        return [name]
    written = name.strip().replace("-", "_")
    asked = written.lower()
    code, _, script = asked.partition("_")
    same = [label for label in labels if label.lower().replace("-", "_") == asked]
    if same or not re.fullmatch("[a-z]{2,3}", code):
        return same
    code = _OTHER_CODES.get(code, code)
    is_script = _SCRIPT.fullmatch(written.partition("_")[2]) is not None
    codes, members = {code}, set[str]()
    for short, longs in _codes().items():
        # A code with a script has three letters of ISO 639-3, where "als" is Albanian; for lid.176 it is Alemannic.
        if code in longs or (code == short and not script):
            codes |= {short} if code in longs else set(longs)
            codes -= {code} if script and short != code and code in labels else set()
        if code == longs[0]:
            members |= set(longs)
    for any_of in (codes, members):  # a macrolanguage means its main language where it has no label of its own
        meant = []
        for label in labels:
            stem, _, label_script = label.lower().replace("-", "_").partition("_")
            if stem in any_of and (not script or (script == label_script if label_script else is_script)):
                meant.append(label)
        if meant:
            return sorted(meant)
    return []


@functools.cache
def _codes() -> dict[str, list[str]]:
    """Return the codes of three letters of each label of lid.176, a macrolanguage before its main language."""
    found: dict[str, list[str]] = {}
    for line in NAMES.split(";"):
        short, long, _ = line.split(maxsplit=2)
        found.setdefault(short, []).append(long)
    return found


def nearest(name: str, labels: Iterable[str]) -> list[str]:
    """Return the labels that may be meant by a code or a name of a language.

    Examples
    --------
    >>> nearest("English", ["de", "en"]), nearest("eng_Latn", ["de", "en"]), nearest("en", ["eng_Latn", "deu_Latn"])
    (['en'], ['en'], ['eng_Latn'])
    """
    asked = name.strip().lower()
    stem = re.split(r"[_-]", asked)[0]
    alike = {asked, stem}
    names: dict[str, str] = {}
    for line in NAMES.split(";"):
        short, long, spoken = line.split(maxsplit=2)
        spoken = spoken.strip().lower()
        names[spoken] = short
        if {asked, stem} & {short, long, spoken}:
            alike |= {short, *_codes()[short]}
    known = sorted(labels)
    if found := [label for label in known if re.split(r"[_-]", label.lower())[0] in alike]:
        return found[:SHOWN]
    close = [names[spoken] for spoken in difflib.get_close_matches(asked, names, n=2, cutoff=0.75)]
    return [label for label in known if label in close] or difflib.get_close_matches(asked, known, n=2, cutoff=0.75)
