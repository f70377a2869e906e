"""Models of the lab that no list knows: whatever path they are asked at, they answer and use 1500 tokens.

The request says how: `{"how": "plain" | "silent" | "cut" | "gzip" | "lines" | "slow", "model": …}`.
"""
import gzip
import json
import time

USAGE = {"prompt_tokens": 1000, "completion_tokens": 500}


def answer(server, url, body):
    """Answers for hosts whose name begins with `llm`; says whether it did."""
    if not server.headers.get("Host", "").startswith("llm"):
        return False
    if server.headers.get("Upgrade", "").lower() == "websocket":
        server.websocket(url, body)
        return True
    if server.command == "GET":
        return False
    asked = json.loads(body or b"{}")
    how, name = asked.get("how", "plain"), asked.get("model", "lab-model")
    whole = {"model": name, "choices": [], "usage": USAGE}
    if how == "slow":
        time.sleep(1)
    if how == "silent":
        server.answer(200, b"{}", "application/json")
    elif how == "gzip":
        packed = gzip.compress(json.dumps(whole).encode())
        server.answer(200, packed, "application/json", extra=[("Content-Encoding", "gzip")])
    elif how == "lines":
        lines = [{"model": name, "done": False}] * 3 + [{"model": name, "done": True, "prompt_eval_count": 1000, "eval_count": 500}]
        server.answer(200, b"".join(json.dumps(line).encode() + b"\n" for line in lines), "application/x-ndjson")
    elif how == "cut":
        server.send_response(200)
        server.send_header("Content-Type", "text/event-stream")
        server.send_header("Transfer-Encoding", "chunked")
        server.end_headers()
        event = b"data: " + json.dumps({"choices": [{"delta": {"content": "x"}}]}).encode() + b"\n\n"
        for _ in range(400):
            server.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        server.wfile.flush()
        # No last chunk, and no usage.
        server.close_connection = True
    else:
        server.answer(200, json.dumps(whole).encode(), "application/json")
    return True
