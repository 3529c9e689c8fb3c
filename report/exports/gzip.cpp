#include "report/exports/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

namespace memlab::report::exports {

class GzipSink::Stream {
  public:
    Stream() {
        constexpr int gzip_window = 15 + 16;  // +16: gzip header instead of zlib's
        constexpr int memory = 8;
        if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_window, memory,
                         Z_DEFAULT_STRATEGY) != Z_OK) {
            throw std::bad_alloc();
        }
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() { deflateEnd(&z); }

    z_stream z{};
    std::array<unsigned char, 1 << 16> out{};
};

GzipSink::GzipSink(model::ByteSink& to) : to_(to), stream_(std::make_unique<Stream>()) {}

GzipSink::~GzipSink() = default;

bool GzipSink::deflate(int flush) {
    z_stream& z = stream_->z;
    do {
        z.next_out = stream_->out.data();
        z.avail_out = static_cast<uInt>(stream_->out.size());
        ::deflate(&z, flush);
        const std::size_t made = stream_->out.size() - z.avail_out;
        failed_ = failed_ || !to_.write(reinterpret_cast<const char*>(stream_->out.data()), made);
    } while (z.avail_out == 0 && !failed_);
    return !failed_;
}

bool GzipSink::write(const char* data, std::size_t size) {
    while (size != 0 && !failed_) {
        const std::size_t piece = std::min<std::size_t>(size, std::numeric_limits<uInt>::max());
        // zlib does not modify its input.
        stream_->z.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(data));
        stream_->z.avail_in = static_cast<uInt>(piece);
        deflate(Z_NO_FLUSH);
        data += piece;
        size -= piece;
    }
    return !failed_;
}

bool GzipSink::finish() {
    return deflate(Z_FINISH);
}

}  // namespace memlab::report::exports
