// The process's log: one line per state change, to stderr. Any thread.
//
//   open_log("controller", LogLevel::info);
//   log_info("host/h1 is up");
#pragma once

#include <string>

namespace regrow {

enum class LogLevel { debug, info, warning, error };

// Call once at start. `process` stands in every line.
void open_log(const std::string& process, LogLevel level);
void log_debug(const std::string& text);
void log_info(const std::string& text);
void log_warning(const std::string& text);
void log_error(const std::string& text);

}  // namespace regrow
