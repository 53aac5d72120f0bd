// What reads bytes that somebody else may have written or damaged, each as one function that must
// come through any input: it returns, or the process dies of what is wrong.
//
// The same functions are run by libFuzzer (tools/test fuzz, clang) and by the unit tests over the
// checked-in corpus and seeded changes of it.
#pragma once

#include <string_view>
#include <vector>

namespace regrow::fuzz {

struct Target {
  const char* name;  // also its directory in corpus/
  void (*run)(std::string_view bytes);
};

const std::vector<Target>& targets();

// Ends the process unless `holds`.
void must(bool holds, const char* what);

void recipe(std::string_view bytes);      // a recipe file
void record(std::string_view bytes);      // an event as the journal stores it
void start_file(std::string_view bytes);  // actors/agent/shim_protocol.h: the start file,
void pid_file(std::string_view bytes);    // the pid file,
void exit_file(std::string_view bytes);   // the exit file
void rank_path(std::string_view bytes);   // names below ranks/, "JOB/RANK.INC"
void rank_frame(std::string_view bytes);  // transport/rank_client/frame.h: what ranks send

}  // namespace regrow::fuzz
