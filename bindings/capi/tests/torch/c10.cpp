// A stand-in for PyTorch's libc10.so.

#include "c10.h"

c10::Error::Error(SourceLocation where, std::string message) : message(message + " in " + where.function) {}
c10::Error::~Error() = default;
const char* c10::Error::what() const noexcept { return message.c_str(); }
c10::OutOfMemoryError::~OutOfMemoryError() = default;
