#include "profiler/python/public_api_check.hpp"

#include <string_view>

#include "profiler/python/frame_interner.hpp"

namespace memlab::profiler::python {
namespace {

/// A reference that is given back.
class Reference {
  public:
    Reference(const PublicApi& api, void* object) : api_(api), object_(object) {}
    ~Reference() { reset(nullptr); }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;

    void* get() const { return object_; }
    void reset(void* object) {
        if (object_ != nullptr) {
            api_.release(object_);
        }
        object_ = object;
    }

  private:
    const PublicApi& api_;
    void* object_;
};

class CollectorOff {
  public:
    explicit CollectorOff(const PublicApi& api) : api_(api), was_on_(api.collector_off() != 0) {}
    ~CollectorOff() {
        if (was_on_) {
            api_.collector_on();
        }
    }
    CollectorOff(const CollectorOff&) = delete;
    CollectorOff& operator=(const CollectorOff&) = delete;

  private:
    const PublicApi& api_;
    const bool was_on_;
};

/// Whether the code's attribute reads `expected`. A name that is no UTF-8 (a surrogate) is not
/// judged: the two ways write it differently.
bool attribute_is(const PublicApi& api, void* code, const char* name, std::string_view expected) {
    const Reference text(api, api.attribute(code, name));
    std::int64_t size = 0;
    const char* utf8 = text.get() != nullptr ? api.utf8(text.get(), &size) : nullptr;
    if (utf8 == nullptr) {
        api.clear_error();
        return true;
    }
    const std::string_view actual(utf8, static_cast<std::size_t>(size));
    return actual == expected ||
           (expected.ends_with("...") && expected.size() < actual.size());  // too long to keep
}

bool is_same(const Interpreter& interpreter, void* frame, const RawFrame& raw) {
    const PublicApi& api = interpreter.api;
    const Reference code(api, api.frame_code(frame));
    if (code.get() != raw.code) {
        return false;
    }
    const Place place = place_of(interpreter, raw);
    const int line = api.frame_line(frame);
    return (line > 0 ? line : 0) == place.line &&
           attribute_is(api, code.get(), "co_qualname", place.function) &&
           attribute_is(api, code.get(), "co_filename", place.file);
}

}  // namespace

Comparison compare_with_public_api(const Interpreter& interpreter, const Frames& frames) {
    const PublicApi& api = interpreter.api;
    if (frames.thread_state == nullptr || interpreter.running_state() != frames.thread_state ||
        api.error() != nullptr) {
        return Comparison::not_now;
    }
    const CollectorOff collector(api);
    Reference frame(api, api.thread_frame(frames.thread_state));
    for (std::size_t i = 0; i < frames.frame_count; ++i) {
        if (frame.get() == nullptr || !is_same(interpreter, frame.get(), frames.frames()[i])) {
            return Comparison::different;
        }
        frame.reset(api.frame_back(frame.get()));
    }
    return frames.truncated || frame.get() == nullptr ? Comparison::equal : Comparison::different;
}

}  // namespace memlab::profiler::python
