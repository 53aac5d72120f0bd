#include "actors/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace regrow {

void open_log(const std::string& process, LogLevel level) {
  auto logger = spdlog::stderr_logger_mt(process);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%f %n %l %v");
  switch (level) {
    case LogLevel::debug:
      logger->set_level(spdlog::level::debug);
      break;
    case LogLevel::info:
      logger->set_level(spdlog::level::info);
      break;
    case LogLevel::warning:
      logger->set_level(spdlog::level::warn);
      break;
    case LogLevel::error:
      logger->set_level(spdlog::level::err);
      break;
  }
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void log_debug(const std::string& text) { spdlog::default_logger_raw()->debug("{}", text); }
void log_info(const std::string& text) { spdlog::default_logger_raw()->info("{}", text); }
void log_warning(const std::string& text) { spdlog::default_logger_raw()->warn("{}", text); }
void log_error(const std::string& text) { spdlog::default_logger_raw()->error("{}", text); }

}  // namespace regrow
