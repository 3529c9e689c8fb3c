#include "tools/control/replies_json.hpp"

#include <utility>

#include "model/json_output.hpp"

namespace memlab::tools {

std::string list_json(const std::vector<LiveStatus>& replies) {
    model::StringSink sink;
    model::JsonOutput json(sink);
    json.begin_object();
    json.member("format", std::string("memlab-replies"));
    json.member("version", 1U);
    json.key("processes");
    json.begin_array();
    for (const LiveStatus& reply : replies) {
        json.begin_object();
        json.member("pid", static_cast<std::uint64_t>(reply.process));
        json.key("problem");
        if (reply.problem.empty()) {
            json.null();
        } else {
            json.string(reply.problem);
        }
        json.key("document");
        if (reply.problem.empty()) {
            json.verbatim(reply.document.substr(0, reply.document.find_last_not_of('\n') + 1));
        } else {
            json.null();
        }
        json.end_object();
    }
    json.end_array();
    json.end_object();
    json.finish();
    return std::move(sink.text);
}

}  // namespace memlab::tools
