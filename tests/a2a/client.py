"""The client that others use, against a daemon: sends, watches, steers, lists, cancels. One line per thing that held."""

import asyncio
import sys
import uuid

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import a2a_pb2 as p
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from a2a.utils.errors import A2AError
from google.protobuf.json_format import ParseDict
from jwt import PyJWK

SPAWN = "https://bastle.dev/a2a/spawn/v1"
DRIVEN = """
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt
echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"I look"}]}}'
read -r more; printf '%s\\n' "$more" > more.txt
echo '{"type":"result","subtype":"success","result":"done"}'
"""

ASKING = """
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt
echo '{"type":"control_request","request_id":"u1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"}}}'
read -r answer; printf '%s\\n' "$answer" > answer.txt
echo '{"type":"result","subtype":"success","result":"done"}'
"""

base, token, workspace, binding, approver = sys.argv[1:]


def message(text, script=None, task=None, driver=None):
    value = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    if script is not None:
        wish = {"argv": ["sh", "-c", script], "workspace": workspace}
        if driver:
            wish["driver"] = driver
        value["metadata"] = {SPAWN: wish}
    if task is not None:
        value["taskId"] = task
    return ParseDict({"message": value}, p.SendMessageRequest())


def state(event):
    status = event.task.status if event.HasField("task") else event.status_update.status
    return p.TaskState.Name(status.state)


async def whole(client, request):
    return [event async for event in client.send_message(request)]


async def refused(what):
    try:
        await what
    except A2AError as error:
        return type(error).__name__
    raise AssertionError("it was not refused")


async def main():
    http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    card = await A2ACardResolver(http, base).get_agent_card()
    verify = create_signature_verifier(key_of, ["ES256"])
    for signed in await cards(http):
        verify(signed)
        for bent in bend(signed):
            try:
                verify(bent)
            except InvalidSignaturesError:
                continue
            raise AssertionError(f"a card that was changed passes: {bent}")
    print("verifies signed cards and no changed one")

    config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
    client = ClientFactory(config).create(card)
    still = ClientFactory(
        ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=False)
    ).create(card)

    events = await whole(client, message("do it", "cat > asked.txt"))
    assert events[0].HasField("task"), events[0]
    assert state(events[-1]) == "TASK_STATE_COMPLETED", events[-1]
    names = [e.artifact_update.artifact.artifact_id for e in events if e.HasField("artifact_update")]
    assert "diff" in names and "provenance" in names, names
    ended = events[0].task.id
    print("streams")

    events = await whole(still, message("do it", "exit 3"))
    assert [state(event) for event in events] == ["TASK_STATE_FAILED"], events
    print("sends")

    task = None
    steered = False
    async for event in client.send_message(message("look", DRIVEN, driver="claude")):
        task = task or event.task.id
        text = event.status_update.status.message.parts
        if text and text[0].text == "I look" and not steered:
            steered = True
            request = message("rather this", task=task)
            request.configuration.return_immediately = True
            answer = await whole(still, request)
            assert answer[0].task.id == task, answer
    assert steered and state(event) == "TASK_STATE_COMPLETED", event
    found = await client.get_task(p.GetTaskRequest(id=task))
    diff = [a for a in found.artifacts if a.artifact_id == "diff"][0]
    assert "rather this" in diff.parts[0].text, diff
    print("steers")

    asked = (await whole(still, message("ask", ASKING, driver="claude")))[0].task
    assert p.TaskState.Name(asked.status.state) == "TASK_STATE_INPUT_REQUIRED", asked
    shown = [part for part in asked.status.message.parts if part.HasField("data")][0]
    shown.data.struct_value.fields["verdict"].string_value = "approve"
    answer = message("yes", task=asked.id)
    answer.message.parts.append(shown)
    # Whoever started the task never answers its questions: a second caller does.
    other = httpx.AsyncClient(headers={"Authorization": f"Bearer {approver}"}, timeout=60)
    second = ClientFactory(
        ClientConfig(httpx_client=other, supported_protocol_bindings=[binding], streaming=False)
    ).create(card)
    done = (await whole(second, answer))[0].task
    assert p.TaskState.Name(done.status.state) == "TASK_STATE_COMPLETED", done
    print("answers a question with the data it was shown")

    request = message("wait", "while :; do sleep 1; done")
    request.configuration.return_immediately = True
    long = (await whole(still, request))[0].task.id
    first = None
    async for event in client.subscribe(p.SubscribeToTaskRequest(id=long)):
        first = event
        break
    assert first.HasField("task") and first.task.id == long, first
    subscribed = asyncio.Event()
    watching = asyncio.create_task(anext_of_end(client, long, subscribed))
    # A task that has ended cannot be subscribed to any more.
    await asyncio.wait([watching, asyncio.create_task(subscribed.wait())], return_when=asyncio.FIRST_COMPLETED)
    canceled = await client.cancel_task(p.CancelTaskRequest(id=long))
    assert p.TaskState.Name(canceled.status.state) == "TASK_STATE_CANCELED", canceled
    assert await watching == "TASK_STATE_CANCELED"
    print("subscribes and cancels")

    page = await client.list_tasks(p.ListTasksRequest(page_size=2))
    assert len(page.tasks) == 2 and page.next_page_token and page.total_size >= 4, page
    rest = await client.list_tasks(p.ListTasksRequest(page_size=2, page_token=page.next_page_token))
    assert not {t.id for t in page.tasks} & {t.id for t in rest.tasks}
    print("lists")

    assert await refused(client.get_task(p.GetTaskRequest(id="none-such"))) == "TaskNotFoundError"
    assert await refused(client.cancel_task(p.CancelTaskRequest(id=ended))) == "TaskNotCancelableError"
    assert await refused(whole(still, message("more", task=ended))) == "UnsupportedOperationError"
    push = p.TaskPushNotificationConfig(task_id=ended, url="https://a.example/")
    assert await refused(client.create_task_push_notification_config(push)) == "PushNotificationNotSupportedError"
    print("is refused in words it knows")

    more = await client.get_extended_agent_card(p.GetExtendedAgentCardRequest())
    assert any(skill.id.startswith("profile:") for skill in more.skills), more
    print("knows more than the public card")

    own = A2ACardResolver(http, f"{base}/a2a/workers/{ended}")
    worker = ClientFactory(config).create(await own.get_agent_card())
    assert (await worker.get_task(p.GetTaskRequest(id=ended))).id == ended
    assert await refused(worker.get_task(p.GetTaskRequest(id=long))) == "TaskNotFoundError"
    print("speaks to a worker by its own card")


def key_of(kid, jku):
    assert jku.startswith(base + "/.well-known/"), jku
    keys = httpx.get(jku).json()["keys"]
    return PyJWK([key for key in keys if key["kid"] == kid][0])


async def cards(http):
    started = await http.get(f"{base}/a2a/extendedAgentCard", headers={"A2A-Version": "1.0"})
    door = await A2ACardResolver(http, base).get_agent_card()
    return [door, ParseDict(started.json(), p.AgentCard())]


def bend(card):
    for change in ("name", "version", "description"):
        bent = p.AgentCard()
        bent.CopyFrom(card)
        setattr(bent, change, "another")
        yield bent
    bent = p.AgentCard()
    bent.CopyFrom(card)
    bent.supported_interfaces[0].url = "http://127.0.0.1:1/elsewhere"
    yield bent
    bent = p.AgentCard()
    bent.CopyFrom(card)
    del bent.security_requirements[:]
    yield bent


async def anext_of_end(client, task, subscribed):
    last = None
    async for event in client.subscribe(p.SubscribeToTaskRequest(id=task)):
        subscribed.set()
        last = state(event) if not event.HasField("artifact_update") else last
    return last


asyncio.run(main())
