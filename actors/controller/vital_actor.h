// For the actors that nobody makes anew: an exception in one of them ends the process, which a
// restart mends; a controller without its journal or its effects would only look alive.
#pragma once

#include <caf/error.hpp>
#include <caf/sec.hpp>
#include <exception>
#include <functional>
#include <string>

namespace regrow {

inline std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no exception";
  }
}

// `fatal` as in Context; does not return in the service.
template <class Self>
void end_process_on_exception(Self* self, std::function<void(const std::string&)> fatal) {
  self->set_exception_handler([self, fatal](std::exception_ptr& thrown) -> caf::error {
    fatal("the actor \"" + std::string(self->state.name) + "\" died: " + text_of(thrown));
    return caf::sec::runtime_error;
  });
}

}  // namespace regrow
