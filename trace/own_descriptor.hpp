// A file descriptor that is safe to keep inside someone else's program. The program may close it
// (closefrom(), a double close()) and reuse its number for its own file. So it is moved to a high
// number, and its inode is checked before each operation that could damage another file.
#pragma once

#include <sys/types.h>

namespace memlab::trace {

/// Moves an open descriptor to a high number that programs do not usually get, close-on-exec.
/// Returns the new number; on failure `descriptor`, unchanged.
int move_to_high_descriptor(int descriptor);

/// Thread-safety: none.
class OwnDescriptor {
  public:
    OwnDescriptor() = default;
    /// Takes ownership and moves it to a high number; -1: none.
    explicit OwnDescriptor(int descriptor);

    /// -1: none, or check() found that it names another file.
    int number() const { return number_; }

    /// Whether the number still names the same file (one fstat()). If not, it is dropped.
    bool check();

    /// Closes the descriptor if it still names the same file. 0, or the errno of close(), where
    /// network file systems report lost writes.
    int close();

  private:
    int number_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace memlab::trace
