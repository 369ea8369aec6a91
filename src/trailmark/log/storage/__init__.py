"""Where logs are kept. The only package that touches files.

`Storage` is the seam. What every implementation promises:

- a published file is whole, or it is not there; the first to publish a name wins, whoever it is;
- a published file is never changed, only deleted; to be written over (`recycle`) it loses its name
  first;
- a failure leaves everything published before as it was.

What it leaves to others: what is in the files, and which may be deleted.
"""

from trailmark.log.storage.local import LocalStorage
from trailmark.log.storage.opening import open_storage
from trailmark.log.storage.protocol import Entry, Part, Storage
from trailmark.log.storage.spares import is_spare

__all__ = ["Entry", "LocalStorage", "Part", "Storage", "is_spare", "open_storage"]
