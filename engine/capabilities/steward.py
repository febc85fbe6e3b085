"""Changes files of the project for a fenced command, so that one rule says where it may.

Behind the fence (`fence.py`, of whose process this is a part) the project can only be read: a Landlock
rule for a folder covers all beneath it, and `.git` couldn't be taken out again. So the kernel hands each
call that changes a file over to this process, which answers in one of three ways:

- it makes the change itself where the rule allows it (`stewarded_call.py`);
- it passes the call on to the kernel, where Landlock decides; never one that Landlock knows no right for;
- it refuses.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from stepfold.engine.capabilities.stewarded_call import (
        HERE,
        NOT_FOLLOWED,
        OF_A_FOLDER,
        Call,
        PassedOn,
        Rule,
    )
else:
    from stewarded_call import HERE, NOT_FOLLOWED, OF_A_FOLDER, Call, PassedOn, Rule

RECEIVE, ANSWER, STILL_VALID, HAND_IN = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
NOTICE = struct.Struct("=QIIiIQ6Q")
PASS_ON, HAND_IN_AND_ANSWER = 1, 2
OPENING = os.O_CREAT | os.O_WRONLY | os.O_TRUNC

CALLS: dict[str, Callable[[Call, Sequence[int]], tuple[int, int] | None]] = {
    "openat": lambda call, given: call.open_file(*given[:4]),
    "open": lambda call, given: call.open_file(HERE, *given[:3]),
    "creat": lambda call, given: call.open_file(HERE, given[0], OPENING, given[1]),
    "truncate": lambda call, given: call.truncate(*given[:2]),
    "mkdirat": lambda call, given: call.make_folder(*given[:3]),
    "mkdir": lambda call, given: call.make_folder(HERE, *given[:2]),
    "mknodat": lambda call, given: call.make_node(*given[:3]),
    "mknod": lambda call, given: call.make_node(HERE, *given[:2]),
    "symlinkat": lambda call, given: call.make_link(*given[:3]),
    "symlink": lambda call, given: call.make_link(given[0], HERE, given[1]),
    "linkat": lambda call, given: call.give_name(*given[:5]),
    "link": lambda call, given: call.give_name(HERE, given[0], HERE, given[1], 0),
    "unlinkat": lambda call, given: call.remove(*given[:3]),
    "unlink": lambda call, given: call.remove(HERE, given[0], 0),
    "rmdir": lambda call, given: call.remove(HERE, given[0], OF_A_FOLDER),
    "renameat2": lambda call, given: call.rename(*given[:5]),
    "renameat": lambda call, given: call.rename(*given[:4]),
    "rename": lambda call, given: call.rename(HERE, given[0], HERE, given[1], 0),
    "fchmodat2": lambda call, given: call.set_mode(*given[:4]),
    "fchmodat": lambda call, given: call.set_mode(*given[:3]),
    "chmod": lambda call, given: call.set_mode(HERE, *given[:2]),
    "fchmod": lambda call, given: call.set_mode(given[0], 0, given[1]),
    "fchownat": lambda call, given: call.set_owner(*given[:5]),
    "chown": lambda call, given: call.set_owner(HERE, *given[:3]),
    "lchown": lambda call, given: call.set_owner(HERE, given[0], given[1], given[2], NOT_FOLLOWED),
    "fchown": lambda call, given: call.set_owner(given[0], 0, *given[1:3]),
    "utimensat": lambda call, given: call.set_times(*given[:4]),
    "futimesat": lambda call, given: call.set_times(*given[:3], unit=1000),
    "utimes": lambda call, given: call.set_times(HERE, *given[:2], unit=1000),
    "utime": lambda call, given: call.set_whole_times(*given[:2]),
}
"""How the arguments of each call lie. Which calls come here is said in `syscall_filter.py`."""


class Steward:
    """Answers the calls that arrive on `listener`; `names` tells which number is which call."""

    def __init__(self, listener: int, names: dict[str, str], rule: Rule) -> None:
        self.listener = listener
        self.names = {int(number): name for number, name in names.items()}
        self.rule = rule

    def attend(self) -> None:
        """Take one call from the kernel and answer it, whatever it is."""
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(self.listener, RECEIVE, notice, True)
        except OSError:
            return  # Its process was killed before it got here.
        identity, task, _, number, _, _, *arguments = NOTICE.unpack(notice)
        error = flags = 0
        call = Call(self.rule, task, lambda: self.tell(STILL_VALID, struct.pack("=Q", identity)))
        try:
            opened = CALLS[self.names[number]](call, arguments)
        except PassedOn:
            flags = PASS_ON
        except OSError as reason:
            error = -(reason.errno or errno.EPERM)
        except Exception:
            # A call that we can't even read is not one that we let happen.
            error = -errno.EPERM
        else:
            if opened is not None:
                error = self.handed_in(identity, *opened)
                if not error:
                    return
        finally:
            call.finish()
        self.tell(ANSWER, struct.pack("=QqiI", identity, 0, error, flags))

    def handed_in(self, identity: int, opened: int, flags: int) -> int:
        """Give an open file to the caller, as the answer to its call; an error if it can hold no more."""
        try:
            parts = (identity, HAND_IN_AND_ANSWER, opened, 0, flags & os.O_CLOEXEC)
            given = self.tell(HAND_IN, struct.pack("=QIIII", *parts))
            return 0 if given else -errno.EMFILE
        finally:
            os.close(opened)

    def tell(self, request: int, message: bytes) -> bool:
        """Tell the kernel something; whether the caller is still there to hear of it."""
        try:
            fcntl.ioctl(self.listener, request, message)
        except OSError:
            return False
        return True
