# SPDX-License-Identifier: BSD-3-Clause
"""XML out of nested lists, and the two documents that clients send."""

import re
import xml.etree.ElementTree

from .errors import S3Error

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
BYTES = 2 << 20


def text_of(value):
    """Escaped as the service does: control characters too, which XML 1.0 does not allow."""
    value = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    value = value.replace('"', "&quot;")
    return re.sub("[\x00-\x08\x0b-\x1f]", lambda match: f"&#{ord(match.group())};", value)


def _element(name, value):
    if isinstance(value, list):
        return f"<{name}>{''.join(_element(*item) for item in value)}</{name}>"
    return f"<{name}>{text_of(value)}</{name}>"


def document(root, children, namespace=NAMESPACE):
    """children: [(name, text or children)].  None leaves an element out."""
    inside = "".join(_element(*item) for item in children if item[1] is not None)
    space = f' xmlns="{namespace}"' if namespace else ""
    return f"{HEAD}<{root}{space}>{inside}</{root}>".encode()


def parse(request, root):
    """The root of the request's body, with namespaces taken off."""
    if request.body.size > BYTES:
        raise S3Error("MalformedXML", "The document is too large.")
    data = b"".join(request.body.pieces(0, request.body.size))
    try:
        found = xml.etree.ElementTree.fromstring(data)
    except xml.etree.ElementTree.ParseError:
        found = None
    if found is not None:
        for node in found.iter():
            node.tag = node.tag.rpartition("}")[2]
    if found is None or found.tag != root:
        raise S3Error(
            "MalformedXML",
            "The XML you provided was not well-formed or did not "
            "validate against our published schema",
        )
    return found
