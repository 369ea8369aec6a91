"""The object stores that URLs may name."""

from __future__ import annotations

from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Provider:
    """A kind of object store.

    Attributes
    ----------
    scheme
        How its URLs begin.
    container
        What the first part of a URL names.
    variables
        How the names of the environment variables begin that say how to get there.
    secrets
        What to set instead of writing a secret into a URL.
    is_tried
        Whether our tests talk to one.
    has_tails
        Whether it can be asked for the last bytes of an object without knowing how long that is.
    """

    scheme: str
    container: str
    variables: str
    secrets: str
    is_tried: bool
    has_tails: bool = True


PROVIDERS = {
    each.scheme: each
    for each in (
        Provider(
            "s3",
            "bucket",
            "AWS_",
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the other AWS_... variables",
            is_tried=True,
        ),
        Provider(
            "gs",
            "bucket",
            "GOOGLE_",
            "GOOGLE_APPLICATION_CREDENTIALS and the other GOOGLE_... variables",
            is_tried=False,
        ),
        Provider(
            "az",
            "container",
            "AZURE_",
            "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and the other AZURE_... "
            "variables",
            is_tried=True,
            has_tails=False,
        ),
    )
}
