// A text of bounded size, for messages and small files. No allocation; what does not fit is cut.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace regrow::shim {

template <size_t kCapacity>
class Text {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(bytes_ + size_, kCapacity - size_, format, arguments);
    va_end(arguments);
    if (n > 0) size_ += static_cast<size_t>(n);
    if (size_ > kCapacity - 1) size_ = kCapacity - 1;
  }
  void clear() { bytes_[size_ = 0] = 0; }
  const char* c_str() const { return bytes_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  char bytes_[kCapacity] = {};
  size_t size_ = 0;
};

using Message = Text<1024>;

}  // namespace regrow::shim
