// A descriptor that memlab keeps in a program that does not know of it. The program may close it
// all the same (closefrom(), a double close()), and then the number is soon that of a file of its
// own: so it is kept where programs' own numbers are not, and asked whose it is before anything is
// done with it that a wrong file would suffer from.
#pragma once

#include <sys/types.h>

namespace memlab::trace {

/// Moves an open descriptor, one that a program would get next, to a high number, close-on-exec.
/// Returns the new number; where that is not possible, `descriptor` as it was.
int move_out_of_the_way(int descriptor);

/// Thread-safety: none.
class OwnDescriptor {
  public:
    OwnDescriptor() = default;
    /// Takes it over and moves it out of the way; -1 is none.
    explicit OwnDescriptor(int descriptor);

    /// -1: none, or it turned out not to be ours any more.
    int number() const { return number_; }

    /// Whether the number still names the file that it did: a system call. When not, it is
    /// forgotten.
    bool check();

    /// Closes what is still ours. 0, or the errno of close(): network file systems tell of lost
    /// writes there.
    int close();

  private:
    int number_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace memlab::trace
