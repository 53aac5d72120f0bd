// One libFuzzer program per target; REGROW_FUZZ_TARGET is its function.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  regrow::fuzz::REGROW_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
