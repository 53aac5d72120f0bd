// Ends everything a rank started, also what left its process group and session.
//
// The shim is a subreaper: whatever loses its parent becomes the shim's child. So it is enough to
// kill the shim's own children again and again; when waitpid says that there are none, nothing is
// left.
#pragma once

#include <stddef.h>
#include <sys/types.h>

namespace regrow::shim {

// Kills this process's children. Their pids cannot have been reused: nobody else reaps them.
// Returns how many were told.
size_t kill_children();

// Reaps what has ended, all but `keep`. False when no child is left (`keep` counts as one).
bool reap_children(pid_t keep);

// Removes a directory tree; follows no symbolic link, whoever races. Errors are ignored.
void remove_tree(const char* path);

}  // namespace regrow::shim
