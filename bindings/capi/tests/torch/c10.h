// PyTorch's exceptions, as far as binpool throws them: the same names, and the same arguments.

#include <cstdint>
#include <exception>
#include <string>

namespace c10 {

struct SourceLocation {
    const char* function;
    const char* file;
    std::uint32_t line;
};

class Error : public std::exception {
  public:
    Error(SourceLocation where, std::string message);
    ~Error() override;
    const char* what() const noexcept override;

  private:
    std::string message;
};

class OutOfMemoryError : public Error {
  public:
    using Error::Error;
    ~OutOfMemoryError() override;
};

}  // namespace c10
