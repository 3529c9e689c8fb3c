// What a recording tells of where and by whom it was made, replaced: host, user, GPUs, folders and
// arguments. What a reader of it needs stays: names of functions, files, libraries and kernels,
// lines, the program's own marks and labels.
//
// Guarantee: the same text always becomes the same text, different paths become different ones, and
// a path of an installed package is still recognized as one. So a recording has the same figures,
// call sites and order as before.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::report {

/// For the recordings of one machine or run: what they share stays shared. Thread-safety: none.
/// Throws std::bad_alloc.
class Anonymizer {
  public:
    /// Learns what has to go from any text: the host, and the user whose home folder is in the
    /// paths. Call it for all processes before their texts.
    void learn(const std::string& host, const std::vector<std::string>& paths);

    /// "host-1"
    std::string host(const std::string& name);
    /// "GPU-00000000-0000-0000-0000-000000000001": the GPUs of a run stay different ones.
    std::string uuid(const std::string& device);
    /// The name of a recording, which may have the host between two dots:
    /// "memlab-run.host-1.4711.json".
    std::string file_name(const std::string& name) const;
    /// The path of a file whose name stays: "/1/train.py",
    /// "/2/site-packages/torch/nn/modules/linear.py",
    /// "/usr/lib/x86_64-linux-gnu/libcuda.so.1".
    std::string path(const std::string& file);
    /// Any text: its absolute paths, which keep the name of a source or a library, else become
    /// "/3"; host and user as words of it.
    std::string text(const std::string& any);
    /// The program, and the script that an interpreter runs.
    std::vector<std::string> arguments(const std::vector<std::string>& all);

  private:
    std::string number(const std::string& folder);
    std::string replace_words(std::string text) const;

    std::map<std::string, std::size_t, std::less<>> hosts_;
    std::map<std::string, std::size_t, std::less<>> devices_;
    std::map<std::string, std::size_t, std::less<>> folders_;
    std::map<std::string, std::string, std::less<>> words_;  ///< what to put for them
};

}  // namespace memlab::report
