-- A script for wrk that posts a file:
--   wrk -t1 -c4 -d5 --latency -s post.lua URL -- FILE [JSON_BYTES]
-- JSON_BYTES is the length of a binary request's JSON; leave it out if the whole request is JSON.
-- wrk counts every status but 2xx and 3xx ("Non-2xx"), but does not check the content of answers.
wrk.method = "POST"

function init(arguments)
    local file = assert(io.open(arguments[1], "rb"))
    wrk.body = file:read("*a")
    file:close()
    if arguments[2] then
        wrk.headers["Inference-Header-Content-Length"] = arguments[2]
    end
end
