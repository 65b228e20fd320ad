"""What a distribution's metadata says about its licence, as SPDX expressions where it can be recognized."""

import re
from importlib.metadata import Distribution
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

# The SPDX identifiers of licences that packages spell in other ways; "BSD" is one that does not say which.
SPDX_IDS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD",
    "BSD-3-Clause, Apache-2.0, dependency licenses": "BSD-3-Clause AND Apache-2.0",  # pypdfium2, with PDFium's own
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "PSFL": "PSF-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
GRANTS = {"Permission is hereby granted, free of charge, to any person obtaining a copy": "MIT"}


def licences_of(package: Distribution) -> list[dict[str, Any]]:
    """The members of `licenses` for a distribution: what its metadata declares, otherwise what its licence file is known for."""
    get_all = package.metadata.get_all
    for text in [*get_all("License-Expression", []), *get_all("License", [])]:
        if expression := spdx_expression(text):
            return licence_members([expression])
    classifiers = [name.rpartition(" :: ")[2] for name in get_all("Classifier", []) if name.startswith("License ::")]
    names = [name for name in classifiers if name != "OSI Approved"] or [licence_from_file(package)]
    return licence_members([name for name in names if name])


def licence_members(texts: list[str]) -> list[dict[str, Any]]:
    """One expression, or a list of licences, each with its SPDX identifier or, where it has none, its name."""
    expressions = [(text, spdx_expression(text)) for text in texts]
    if len(texts) == 1 and " " in expressions[0][1]:
        return [{"expression": expressions[0][1]}]
    return [{"license": {"id": expression} if expression else {"name": text}} for text, expression in expressions]


def spdx_expression(text: str) -> str:
    """The text as an SPDX expression, or empty if it is none."""
    try:
        return str(canonicalize_license_expression(SPDX_IDS.get(text.strip(), text.strip())))
    except InvalidLicenseExpression:
        return ""


def licence_from_file(package: Distribution) -> str:
    """The licence recognized by the text of the licence file, or empty."""
    files = [file for file in package.files or [] if re.search(r"\.dist-info/.*licen[cs]e", str(file), re.IGNORECASE)]
    texts = [" ".join(str(file.locate().read_text()).split()) for file in files]  # type: ignore[attr-defined]
    return next((name for words, name in GRANTS.items() if any(words in text for text in texts)), "")
