# SPDX-License-Identifier: BSD-3-Clause
"""Checks AWS's Signature Version 4 of a request, as the service does: from the raw request line."""

import calendar
import hashlib
import hmac
import re
import time
import urllib.parse

from .errors import S3Error
from .wire import decode

WINDOW_SECONDS = 15 * 60
ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


class Credential:
    def __init__(self, access_key, secret_key, token=None):
        self.access_key = access_key
        self.secret_key = secret_key
        self.token = token


def escape(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


def canonical_request(request, signed, payload):
    """What is signed.  The path is escaped once, and never normalised."""
    query = sorted((escape(name), escape(value)) for name, value in request.query)
    headers = []
    for name in signed:
        values = [re.sub(" +", " ", value) for have, value in request.headers if have == name]
        headers.append(f"{name}:{','.join(values)}\n")
    return "\n".join(
        [
            request.method,
            escape(decode(request.raw_path), safe="/"),
            "&".join(f"{name}={value}" for name, value in query),
            "".join(headers),
            ";".join(signed),
            payload,
        ]
    )


def signing_key(secret, day, region):
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def string_to_sign(stamp, scope, canonical):
    return f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"


def _malformed(message, more=None):
    return S3Error(
        "AuthorizationHeaderMalformed", f"The authorization header is malformed; {message}", more
    )


def _parse_authorization(text):
    scheme, _, rest = text.partition(" ")
    if scheme != ALGORITHM:
        raise S3Error(
            "InvalidRequest",
            "The authorization mechanism you have provided is not "
            "supported. Please use AWS4-HMAC-SHA256.",
        )
    fields = {}
    for item in rest.split(","):
        name, equals, value = item.strip().partition("=")
        if not equals or name in fields:
            raise _malformed("a field has no value.")
        fields[name] = value
    if set(fields) != {"Credential", "SignedHeaders", "Signature"}:
        raise _malformed("it needs Credential, SignedHeaders and Signature.")
    return fields


def _parse_scope(text, region):
    """Access key and day.  An access key may have slashes: the scope is the last four parts."""
    parts = text.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request":
        raise _malformed("the Credential has no scope.")
    key, day, its_region, service, _ = parts
    if service != "s3":
        raise _malformed(f'incorrect service "{service}". This endpoint belongs to "s3".')
    if its_region != region:
        raise _malformed(
            f"the region '{its_region}' is wrong; expecting '{region}'", {"Region": region}
        )
    return key, day


def _check_signed_headers(request, signed):
    if signed != sorted(set(signed)) or any(name != name.lower() for name in signed):
        raise _malformed("SignedHeaders are not sorted, or not in lower case.")
    present = {name for name, _ in request.headers}
    needed = {"host"} | {name for name in present if name.startswith("x-amz-")}
    for name in sorted(needed - set(signed)):
        raise S3Error(
            "AccessDenied",
            "There were headers present in the request which were not signed",
            {"HeadersNotSigned": name},
        )
    for name in sorted(set(signed) - present):
        raise S3Error("SignatureDoesNotMatch", f"The signed header '{name}' is not in the request.")


def _check_time(stamp, day, now):
    try:
        seconds = calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise S3Error(
            "AccessDenied", "AWS authentication requires a valid Date or x-amz-date header"
        ) from None
    if not stamp.startswith(day):
        raise S3Error("SignatureDoesNotMatch", "The day of the scope is not that of x-amz-date.")
    if abs(seconds - now) > WINDOW_SECONDS:
        raise S3Error(
            "RequestTimeTooSkewed",
            "The difference between the request time and the current time is too large.",
            {
                "RequestTime": stamp,
                "ServerTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
                "MaxAllowedSkewMilliseconds": str(WINDOW_SECONDS * 1000),
            },
        )


def _check_token(request, credential, expired):
    token = request.header("x-amz-security-token")
    if credential.access_key in expired or (token is not None and token in expired):
        raise S3Error("ExpiredToken", "The provided token has expired.")
    if credential.token is not None and token is None:
        raise _unknown_key(credential.access_key)
    if token != credential.token:
        raise S3Error("InvalidToken", "The provided token is malformed or otherwise invalid.")


def _unknown_key(key):
    return S3Error(
        "InvalidAccessKeyId",
        "The AWS Access Key Id you provided does not exist in our records.",
        {"AWSAccessKeyId": key},
    )


def _check_payload(request, payload, strict):
    if payload is None:
        raise S3Error(
            "InvalidRequest", "Missing required header for this request: x-amz-content-sha256"
        )
    if re.fullmatch("[0-9a-f]{64}", payload):
        return
    if payload not in (UNSIGNED, UNSIGNED_TRAILER):
        raise S3Error("NotImplemented", f"x-amz-content-sha256: {payload} is not implemented.")
    if strict and not request.secure:
        raise S3Error(
            "InvalidRequest",
            "x-amz-content-sha256 must be the hash of the payload over plain http.",
        )


def check(request, credentials, region, now, expired, strict):
    """Raises S3Error unless a known credential signed this request, now.  Says which one."""
    authorization = request.header("authorization")
    if authorization is None:
        raise S3Error("AccessDenied", "Access Denied")
    fields = _parse_authorization(authorization)
    key, day = _parse_scope(fields["Credential"], region)
    credential = credentials.get(key)
    if credential is None:
        raise _unknown_key(key)
    signed = fields["SignedHeaders"].split(";")
    _check_signed_headers(request, signed)
    stamp = request.header("x-amz-date") or ""
    _check_time(stamp, day, now)
    _check_token(request, credential, expired)
    payload = request.header("x-amz-content-sha256")
    _check_payload(request, payload, strict)
    canonical = canonical_request(request, signed, payload)
    text = string_to_sign(stamp, f"{day}/{region}/s3/aws4_request", canonical)
    wanted = hmac.new(
        signing_key(credential.secret_key, day, region), text.encode(), hashlib.sha256
    ).hexdigest()
    if not hmac.compare_digest(wanted, fields["Signature"]):
        raise S3Error(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you "
            "provided. Check your key and signing method.",
            {
                "AWSAccessKeyId": key,
                "StringToSign": text,
                "SignatureProvided": fields["Signature"],
                "CanonicalRequest": canonical,
            },
        )
    return key
