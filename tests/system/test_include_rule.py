"""Who may include whom: supervisors/ decides and does nothing, actors/ does and decides nothing.

The rule holds what the architecture promises: decisions that run the same in a test, a simulation and
the controller. docs/architecture.md explains it. Cap'n Proto imports count as includes.
"""
# ctest: timeout=60
import os
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("REGROW_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))

# Folder -> prefixes of our own paths that it may include, besides its own.
ALLOWED = {
    "supervisors": [],
    "journal": ["supervisors/"],
    "devices": ["supervisors/"],
    "recipes": ["supervisors/"],
    "transport": ["supervisors/", "journal/reflect_", "transport/"],
    "transport/rank_client": [],  # linked by ranks: libc and itself
    "actors": ["supervisors/", "journal/", "devices/", "transport/", "recipes/"],
    "tools": ["supervisors/", "journal/", "devices/", "transport/", "recipes/", "actors/"],
    "tests": [""],
}
MAY_USE_CAF = {"actors", "tests"}
# The standard headers through which a decision could reach the world or depend on the moment.
WORLD = {"condition_variable", "cstdio", "ctime", "filesystem", "fstream", "future", "iostream",
         "mutex", "random", "syncstream", "thread"}

INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*([<"])([^>"]+)[>"]')
CAPNP_IMPORT = re.compile(r'^[^#]*\bimport\s+(")([^"]+)"')


def uses(root, path):
    """Yields (line number, delimiter, what) for each include of one file."""
    schema = path.suffix == ".capnp"
    pattern = CAPNP_IMPORT if schema else INCLUDE
    beside = path.parent.relative_to(root).as_posix() + "/"
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        found = pattern.search(line)
        if found:
            what = found[2]
            if schema:  # "/x" is looked up from the root, "x" beside the file
                what = what[1:] if what.startswith("/") else beside + what
            yield number, found[1], what


def folder_of(name):
    """The most particular folder of the table that holds this path."""
    return max((f for f in ALLOWED if name.startswith(f + "/")), key=len, default=None)


def objection(root, name, delimiter, what):
    """Why this file may not include that, or None."""
    folder = folder_of(name)
    if what.startswith("caf/") and folder not in MAY_USE_CAF:
        return f"CAF belongs to actors/; {folder}/ may not know it"
    target = folder_of(what)
    if target is None:
        if delimiter == '"':
            generated = what.endswith(".capnp.h") and (root / what[:-2]).exists()
            if not generated and not what.startswith("capnp/"):
                return "quotes are for our own files, named from the root of the project"
        if folder == "supervisors" and ("/" in what or "." in what):
            return "supervisors/ may include only the C++ standard library"
        # rank.hpp is compiled into programs that have a C++ library anyway.
        own_code = folder == "transport/rank_client" and not name.endswith(".hpp")
        if own_code and not what.endswith(".h"):
            return "the rank library needs libc and nothing else"
        if folder == "supervisors" and what in WORLD:
            return f"supervisors/ may not reach the world or the moment through <{what}>"
        return None
    if target == folder or any(what.startswith(prefix) for prefix in ALLOWED[folder]):
        return None
    return f"{folder}/ may not include {target}/ (allowed: {', '.join(ALLOWED[folder]) or 'nothing'})"


def violations(root):
    found = []
    for top in sorted({f.split("/")[0] for f in ALLOWED}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".hpp", ".cpp", ".c", ".capnp") or not path.is_file():
                continue
            name = path.relative_to(root).as_posix()
            for number, delimiter, what in uses(root, path):
                why = objection(root, name, delimiter, what)
                if why:
                    found.append(f"{name}:{number}: includes {what}: {why}")
    return found


class IncludeRule(unittest.TestCase):
    def test_the_project_keeps_the_include_rule(self):
        self.assertEqual([], violations(ROOT))

    def test_the_check_reads_the_whole_project(self):
        sources = [p for top in ("supervisors", "journal") for p in (ROOT / top).rglob("*.h")]
        self.assertGreater(sum(1 for p in sources for _ in uses(ROOT, p)), 10)

    def planted(self, name, line, others=()):
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            for path, text in [(name, f"// planted\n{line}\n"), *((o, "") for o in others)]:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return violations(root)

    def test_a_planted_violation_is_found(self):
        for name, line in [
            ("supervisors/rank.cpp", "#include <caf/all.hpp>"),
            ("supervisors/rank.cpp", '#include "journal/journal.h"'),
            ("supervisors/rank.h", "#  include <rocksdb/db.h>"),
            ("supervisors/rank.h", "#include <unistd.h>"),
            ("supervisors/deep/rank.h", "#include <thread>"),
            ("journal/journal.cpp", '#include "transport/rpc.h"'),
            ("devices/probe.cpp", '#include "actors/agent/agent.h"'),
            ("recipes/parse.cpp", '#include "devices/probe.h"'),
            ("transport/rpc.cpp", '#include "journal/journal.h"'),
            ("transport/rpc.cpp", "#include <caf/actor.hpp>"),
            ("devices/probe.cpp", "#include <caf/all.hpp>"),
            ("transport/schema/rpc.capnp", 'using X = import "/devices/schema/x.capnp";'),
            ("transport/rank_client/client.c", '#include "supervisors/types.h"'),
            ("transport/rank_client/client.cpp", '#include "transport/address.h"'),
            ("transport/rank_client/client.cpp", "#include <string>"),
            ("transport/rank_client/client.h", "#include <mutex>"),
            ("transport/rank_client/include/regrow/rank.hpp", '#include "supervisors/types.h"'),
            ("actors/a.cpp", '#include "tools/regrow/cli.h"'),
            ("tools/regrow/main.cpp", "#include <caf/actor_system.hpp>"),
            ("journal/journal.cpp", '#include "codec.h"'),
        ]:
            with self.subTest(file=name, line=line):
                found = self.planted(name, line)
                self.assertEqual(1, len(found), found)
                self.assertTrue(found[0].startswith(f"{name}:2: "), found)

    def test_what_the_rule_allows_passes(self):
        for name, line in [
            ("supervisors/rank.cpp", "#include <vector>"),
            ("supervisors/rank.cpp", '#include "supervisors/rank.h"'),
            ("journal/journal.cpp", "#include <rocksdb/db.h>"),
            ("journal/codec.cpp", '#include "journal/schema/event.capnp.h"'),
            ("transport/rpc.cpp", '#include "journal/reflect_capnp.h"'),
            ("transport/rpc.cpp", '#include "transport/rank_client/frame.h"'),
            ("transport/rank_client/client.cpp", '#include "transport/rank_client/frame.h"'),
            ("transport/rank_client/client.cpp", "#include <sys/socket.h>"),
            ("transport/rank_client/include/regrow/rank.hpp", "#include <limits>"),
            ("transport/schema/rpc.capnp", 'using Cxx = import "/capnp/c++.capnp";'),
            ("journal/schema/event.capnp", 'using X = import "types.capnp".X;'),
            ("actors/a.cpp", "#include <caf/all.hpp>"),
            ("tests/sim/a.cpp", '#include "actors/a.h"'),
        ]:
            with self.subTest(file=name, line=line):
                self.assertEqual([], self.planted(name, line))


if __name__ == "__main__":
    unittest.main()
