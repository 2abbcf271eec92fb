# SPDX-License-Identifier: BSD-3-Clause
"""Errors as S3 answers them: a status, a code, a message, and more elements for some codes."""

STATUS = {
    "AccessDenied": 403, "AuthorizationHeaderMalformed": 400, "BadDigest": 400,
    "ConditionalRequestConflict": 409, "EntityTooLarge": 400, "EntityTooSmall": 400,
    "ExpiredToken": 400, "IncompleteBody": 400, "InternalError": 500, "InvalidAccessKeyId": 403,
    "InvalidArgument": 400, "InvalidDigest": 400, "InvalidPart": 400, "InvalidPartOrder": 400,
    "InvalidRange": 416, "InvalidRequest": 400, "InvalidToken": 400, "InvalidURI": 400,
    "KeyTooLongError": 400, "MalformedXML": 400, "MetadataTooLarge": 400, "MethodNotAllowed": 405,
    "MissingContentLength": 411, "NoSuchBucket": 404, "NoSuchKey": 404, "NoSuchUpload": 404,
    "NotImplemented": 501, "PermanentRedirect": 301, "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403, "ServiceUnavailable": 503, "SignatureDoesNotMatch": 403,
    "SlowDown": 503, "TemporaryRedirect": 307, "TooManyRequests": 429,
    "XAmzContentSHA256Mismatch": 400,
}  # fmt: skip


class S3Error(Exception):
    """An answer that is not a success.  `more` are further elements of <Error>."""

    def __init__(self, code, message, more=None, headers=(), status=None):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.more = dict(more or {})
        self.headers = list(headers)
        self.status = status or STATUS[code]
