#include "model/live/live_documents.hpp"

#include <utility>

#include "model/json_members.hpp"
#include "model/json_output.hpp"

namespace memlab::model {
namespace {

class LiveWriter final : public JsonMembers<LiveWriter> {
  public:
    using JsonMembers::JsonMembers;
};

template <typename Document>
std::string json_of(const Document& document) {
    StringSink sink;
    JsonOutput json(sink);
    LiveWriter(json).write(document);
    json.finish();
    return std::move(sink.text);
}

}  // namespace

std::string to_json(const StatusDocument& document) {
    return json_of(document);
}

std::string to_json(const ActionDocument& document) {
    return json_of(document);
}

std::string to_json(const PoolDocument& document) {
    return json_of(document);
}

}  // namespace memlab::model
