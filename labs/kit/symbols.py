"""What the compiled files of a student refer to: an allow-list of symbols, compared with the reference's.

A symbol may be used if the reference's object file uses it too, or if it belongs to the C++ language, to arithmetic,
to memory, to text or to the tree itself. So a library's product, another collective of MPI, files, processes and sockets
are not available, whatever they are called. Definitions are checked as well: an object may not define a function of a
library, such as the clock, in place of the library's.
"""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from kit.overlay import dependencies


@dataclass(frozen=True)
class Symbols:
    """The mangled names that an object file uses and defines."""
    undefined: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()


@dataclass
class Findings:
    refused: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)  # allowed, but an instructor should look

    def add(self, other: "Findings") -> None:
        """Each finding once: several objects may hold the same header."""
        self.refused += [one for one in other.refused if one not in self.refused]
        self.flags += [one for one in other.flags if one not in self.flags]


# C names that any code may use. A trailing * stands for any ending.
_C_NAMES = """
    memcpy memmove memset memcmp memchr strlen strcmp strncmp strchr strerror
    abort __assert_fail __stack_chk_fail malloc calloc realloc free aligned_alloc posix_memalign
    printf fprintf puts putchar fputs fputc fwrite fflush snprintf sprintf vsnprintf __printf_chk __fprintf_chk
    __snprintf_chk __sprintf_chk __memcpy_chk __memmove_chk __memset_chk stdout stderr
    clock_gettime GOMP_* omp_get_* __cxa_* __gxx_personality_v0 _Unwind_Resume __dso_handle _GLOBAL_OFFSET_TABLE_
    __tls_get_addr __errno_location _ZGV* __dynamic_cast __tls_init __atomic_* rand srand qsort bsearch atoi strtol
    strtod sched_yield pthread_mutex_* pthread_cond_* pthread_once pthread_create pthread_join pthread_detach pthread_self
""".split()
_MATHEMATICS = """
    acos asin atan atan2 cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp
    hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter pow
    remainder rint round scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc
""".split()
_ALLOWED_C = re.compile("(?:%s)$" % "|".join(
    re.escape(name).replace(r"\*", ".*")
    for name in [*_C_NAMES, *(f"{name}{ending}" for name in _MATHEMATICS for ending in ("", "f", "l"))]))

# The C++ library and language, and the tree. Mangled names begin with _Z; N and K are namespaces and const.
_CXX = re.compile(r"_Z(T[VTIS]|GV|Z)?N?K?(S[a-z]|n[aw]|d[al]|10__cxxabiv1|9__gnu_cxx)")
_TREE = re.compile(r"_Z(T[VTISHW]|GV|Z)?N?V?K?(8stagegpt|3lab)")
_TYPE_NAMES = re.compile(r"_ZT[IS]")
_CXX_FORBIDDEN = re.compile(r"basic_(filebuf|[io]?fstream)|St10filesystem|__basic_file")
# Defined by a student's file, these would take the place of the library's.
_REPLACED = re.compile(r"St6chrono|7testing|_Zn[aw]m(?!Pv)|_Zd[al]Pv|basic_(filebuf|streambuf)")


def of_object(path: Path) -> Symbols:
    """Reads an object file with nm."""
    listed = subprocess.run(["nm", "--format=posix", "--no-sort", str(path)], capture_output=True, check=True).stdout
    undefined, defined = set(), set()
    for line in listed.decode(errors="replace").splitlines():
        name, kind, *_ = line.split(" ")
        if kind in "Uvw":
            undefined.add(name)
        elif kind.isupper() and kind not in "N" or kind == "u":
            defined.add(name)
    return Symbols(frozenset(undefined), frozenset(defined))


def objects_of(build: Path, sources: list[Path]) -> list[Path]:
    """The object files that depend on any of the sources, by ninja's record of the last build."""
    wanted = {source.resolve() for source in sources}
    found = [build / target for target, files in dependencies(build) if wanted.intersection(files)]
    return sorted(path for path in found if path.suffix == ".o" and path.exists())


def is_allowed(name: str) -> bool:
    return not _CXX_FORBIDDEN.search(name) and any(
        pattern.match(name) for pattern in (_ALLOWED_C, _CXX, _TREE, _TYPE_NAMES))


def compare(student: Symbols, reference: Symbols) -> Findings:
    """What a student's object file uses or defines, and may not."""
    findings = Findings()
    for name in sorted(student.undefined - reference.undefined):
        if not is_allowed(name):
            findings.refused.append(f"uses {readable(name)}")
        elif _TREE.match(name):
            findings.flags.append(f"calls {readable(name)}, which the solution does not call")
    for name in sorted(student.defined - reference.defined):
        if not name.startswith("_Z") and not name.startswith("DW.ref.") or _REPLACED.search(name):
            findings.refused.append(f"defines {readable(name)}, which belongs to a library")
    return findings


def readable(name: str) -> str:
    """A name as it stands in the source, without its parameters."""
    shown = subprocess.run(["c++filt", "--no-params", name], capture_output=True, text=True).stdout.strip()
    return shown or name
