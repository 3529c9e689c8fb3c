// A ByteSink that compresses with gzip into another sink. Deterministic: no time or name in the
// header.
#pragma once

#include <memory>

#include "model/json_output.hpp"

namespace memlab::report::exports {

/// Thread-safety: none.
class GzipSink final : public model::ByteSink {
  public:
    /// Throws std::bad_alloc.
    explicit GzipSink(model::ByteSink& to);
    ~GzipSink() override;

    bool write(const char* data, std::size_t size) override;

    /// Ends the file; false when the other sink has failed at any time. Call once, at the end.
    bool finish();

  private:
    class Stream;
    bool deflate(int flush);

    model::ByteSink& to_;
    std::unique_ptr<Stream> stream_;
    bool failed_ = false;
};

}  // namespace memlab::report::exports
