// Baselines: the figures of an earlier run that relative limits compare with, keyed by GPU and
// driver version, since both change them. A file holds any number of keys; a folder holds one file
// per key, so that two machines never edit the same file. The output depends on the figures only:
// the same run gives the same bytes, and a diff in version control shows what changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/check/limit.hpp"

namespace memlab::report::check {

/// The GPU and driver that a figure was measured on.
struct BaselineKey {
    std::string gpu;
    std::uint64_t driver_version = 0;  ///< 13000 is 13.0

    // NOLINTNEXTLINE(modernize-use-nullptr): the 0 it complains of is the compiler's own.
    auto operator<=>(const BaselineKey&) const = default;
};

struct BaselineFigure {
    BaselineKey key;
    std::string process;                  ///< "rank 0", "train.py"
    std::optional<std::uint64_t> device;  ///< as in Measurement
    Metric metric = Metric::peak_allocated;
    Subject subject;
    Figure figure;
};

class Baseline {
  public:
    Baseline() = default;
    explicit Baseline(std::vector<BaselineFigure> figures) : figures_(std::move(figures)) {}

    const std::vector<BaselineFigure>& figures() const { return figures_; }

    bool contains(const BaselineKey& key) const;

    /// An empty `process` matches any. std::nullopt when there is no such figure.
    std::optional<Figure> find(const BaselineKey& key, const std::string& process,
                               const std::optional<std::uint64_t>& device, Metric metric,
                               const Subject& subject) const;

    /// The names of the processes that have figures of `key`, without duplicates.
    std::vector<std::string> processes(const BaselineKey& key) const;

    /// Replaces all figures of the keys in `newer`.
    void replace(const std::vector<BaselineFigure>& newer);

  private:
    std::vector<BaselineFigure> figures_;
};

struct BaselineResult {
    std::optional<Baseline> baseline;  ///< none: not a baseline, or see `error`
    std::string error;                 ///< "what; what to do"
    bool exists = false;
};

/// Reads a baseline file, or all files of a folder. A missing path and a file or folder of another
/// kind (a report, for example) are no errors: `baseline` is then empty.
BaselineResult read_baseline(const std::string& path);

/// Parses the text of a baseline file. Throws std::bad_alloc only.
BaselineResult parse_baseline(const std::string& text);

/// The text of a baseline file.
std::string baseline_text(const std::vector<BaselineFigure>& figures);

/// Writes `figures` to the file or folder `path`; figures of other keys are kept. A path that ends
/// in "/" is created as a folder. Each file is replaced atomically. Returns the error, or "".
std::string update_baseline(const std::string& path, const std::vector<BaselineFigure>& figures);

/// "NVIDIA H100 80GB HBM3 with a CUDA 13.0 driver".
std::string key_text(const BaselineKey& key);

}  // namespace memlab::report::check
