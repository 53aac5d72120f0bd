// Why an exec failed, found out by looking again at what exec looked at.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shim/rank_process.h"

namespace regrow::shim {
namespace {

// Finds the file that argv[0] names, as exec_by_path would. False if there is none.
bool find_program(const StartFile& start, char (&found)[PATH_MAX]) {
  const char* program = start.argv[0];
  if (program[0] == '/') {
    snprintf(found, sizeof found, "%s", program);
    return access(found, F_OK) == 0;
  }
  if (strchr(program, '/') != nullptr) {
    snprintf(found, sizeof found, "%s/%s", start.cwd, program);
    return access(found, F_OK) == 0;
  }
  const char* path = rank_variable(start, "PATH");
  for (const char* at = path != nullptr ? path : "/usr/bin:/bin"; at != nullptr;) {
    const char* colon = strchr(at, ':');
    int length =
        static_cast<int>(colon != nullptr ? colon - at : static_cast<ptrdiff_t>(strlen(at)));
    snprintf(found, sizeof found, "%.*s/%s", length, at, program);
    if (length > 0 && access(found, F_OK) == 0) return true;
    at = colon != nullptr ? colon + 1 : nullptr;
  }
  return false;
}

// What runs `program`: the line behind "#!", or the dynamic loader of an ELF file. Empty if nothing
// does.
void find_interpreter(const char* program, char (&interpreter)[PATH_MAX]) {
  interpreter[0] = 0;
  int fd = open(program, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char head[4096];
  ssize_t n = pread(fd, head, sizeof head - 1, 0);
  if (n >= 2 && head[0] == '#' && head[1] == '!') {
    head[n] = 0;
    char* name = head + 2 + strspn(head + 2, " \t");
    name[strcspn(name, " \t\r\n")] = 0;
    snprintf(interpreter, sizeof interpreter, "%.*s", PATH_MAX - 1, name);
  } else if (n >= static_cast<ssize_t>(sizeof(Elf64_Ehdr)) && memcmp(head, ELFMAG, SELFMAG) == 0) {
    Elf64_Ehdr elf;
    memcpy(&elf, head, sizeof elf);
    for (int i = 0; i < elf.e_phnum; ++i) {
      Elf64_Phdr part;
      off_t at = static_cast<off_t>(elf.e_phoff) + i * static_cast<off_t>(sizeof part);
      if (pread(fd, &part, sizeof part, at) != static_cast<ssize_t>(sizeof part)) break;
      if (part.p_type != PT_INTERP || part.p_filesz >= PATH_MAX) continue;
      ssize_t size = pread(fd, interpreter, part.p_filesz, static_cast<off_t>(part.p_offset));
      interpreter[size > 0 ? size : 0] = 0;
    }
  }
  close(fd);
}

// Why somebody may not use `path`: names the first directory on the way that cannot be entered.
void explain_denied(const char* what, const char* path, Message& message) {
  struct stat st;
  if (stat(path, &st) == 0) {
    message.add("%s %s may not be %s (mode %03o, owner uid %u)", what, path,
                S_ISDIR(st.st_mode) ? "used: it is a directory" : "executed: permission denied",
                st.st_mode & 0777, st.st_uid);
    if (!S_ISDIR(st.st_mode)) message.add("; chmod +x it, or name an interpreter in the recipe");
  } else {
    message.add("%s %s cannot be reached: %s", what, path, strerror(errno));
  }
}

void explain_missing(const StartFile& start, Message& message) {
  char program[PATH_MAX], interpreter[PATH_MAX];
  if (!find_program(start, program)) {
    message.add("program %s does not exist", start.argv[0]);
    if (strchr(start.argv[0], '/') == nullptr) {
      const char* path = rank_variable(start, "PATH");
      message.add(" in PATH=%s", path != nullptr ? path : "");
    }
    return;
  }
  find_interpreter(program, interpreter);
  if (interpreter[0] != 0) {
    message.add("interpreter %s of program %s does not exist", interpreter, program);
  } else {
    message.add("program %s needs something that does not exist", program);
  }
}

// exec says only "too big": find the longest string and the sum.
void explain_too_big(const StartFile& start, Message& message) {
  constexpr size_t kMostPerString = 128 * 1024;  // MAX_ARG_STRLEN, the final NUL included
  const char* longest = "";
  size_t most = 0, total = 0;
  bool is_variable = false;
  for (int list = 0; list < 2; ++list) {
    for (char** at = list == 0 ? start.argv : start.envp; *at != nullptr; ++at) {
      size_t size = strlen(*at) + 1;
      total += size + sizeof(char*);
      if (size <= most) continue;
      most = size, longest = *at, is_variable = list == 1;
    }
  }
  size_t name_length = is_variable ? strcspn(longest, "=") : 0;
  Text<256> name;
  if (is_variable) {
    name.add("environment variable %.*s", static_cast<int>(name_length), longest);
  } else {
    name.add("argument '%.32s...'", longest);
  }
  if (most > kMostPerString) {
    message.add("%s has %zu bytes; exec accepts at most %zu for one string (E2BIG)", name.c_str(),
                most, kMostPerString);
  } else {
    message.add(
        "arguments and environment together have %zu bytes, more than exec accepts (E2BIG); "
        "the largest is %s with %zu bytes",
        total, name.c_str(), most);
  }
  message.add("; pass long values in a file");
}

void explain_exec(int error, const StartFile& start, Message& message) {
  char program[PATH_MAX];
  switch (error) {
    case ENOENT:
      return explain_missing(start, message);
    case EACCES:
    case EPERM:
      if (!find_program(start, program)) snprintf(program, sizeof program, "%s", start.argv[0]);
      return explain_denied("program", program, message);
    case ENOEXEC:
      message.add(
          "program %s is not in a format that can be executed; a script needs a first line "
          "such as #!/bin/sh, or name its interpreter in the recipe",
          start.argv[0]);
      return;
    case E2BIG:
      return explain_too_big(start, message);
    default:
      message.add("program %s cannot be executed: %s", start.argv[0], strerror(error));
  }
}

}  // namespace

void explain(const ExecFailure& failure, const StartFile& start, Message& message) {
  const char* reason = strerror(failure.error);
  switch (failure.step) {
    case ExecFailure::kPidFile:
      message.add("cannot write the rank's pid file: %s", reason);
      return;
    case ExecFailure::kLimits: {
      struct rlimit files = {};
      getrlimit(RLIMIT_NOFILE, &files);
      message.add(
          "cannot allow %llu open files: %s (the hard limit is %llu); lower nofile in the recipe "
          "or raise the limit of the agent",
          static_cast<unsigned long long>(start.nofile), reason,
          static_cast<unsigned long long>(files.rlim_max));
      return;
    }
    case ExecFailure::kUser:
      message.add("cannot become uid %u, gid %u: %s", start.uid, start.gid, reason);
      return;
    case ExecFailure::kDirectory:
      if (failure.error == EACCES) return explain_denied("working directory", start.cwd, message);
      message.add("working directory %s: %s", start.cwd, reason);
      return;
    case ExecFailure::kExec:
      return explain_exec(failure.error, start, message);
    default:
      message.add("the rank died before its program began");
  }
}

}  // namespace regrow::shim
