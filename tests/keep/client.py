"""Drives `bastle acp` with the protocol's own Python client: argv is bastle, and the project with the agent's script."""
import asyncio
import sys

from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

PATIENCE = 120
bastle, project = sys.argv[1:3]


class Editor:
    """Answers every request for permission as it was told to, and keeps what the agent says."""

    def __init__(self):
        self.text, self.asked, self.answer = "", [], None
        self.spoke = asyncio.Event()

    async def request_permission(self, session_id, tool_call, options, **more):
        self.asked.append(tool_call.raw_input)
        choice = next((o for o in options if o.kind == self.answer), None)
        outcome = (
            AllowedOutcome(outcome="selected", option_id=choice.option_id)
            if choice
            else DeniedOutcome(outcome="cancelled")
        )
        return RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id, update, **more):
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text
            self.spoke.set()

    def on_connect(self, agent):
        pass


async def main():
    editor = Editor()
    words = ["acp", "--workspace", "copy", "--driver", "claude", "--", "sh", "agent.sh"]
    async with spawn_agent_process(editor, bastle, *words, cwd=project, transport_kwargs={"stderr": None}) as (agent, _):

        async def asks(words):
            editor.text = ""
            return await agent.prompt(session_id=session, prompt=[text_block(words)])

        hello = await agent.initialize(protocol_version=PROTOCOL_VERSION)
        assert hello.protocol_version == PROTOCOL_VERSION, hello
        session = (await agent.new_session(cwd=project, mcp_servers=[])).session_id
        print("opened", flush=True)
        turn = await asks("WRITE")
        assert turn.stop_reason == "end_turn" and "wrote" in editor.text, (turn, editor.text)
        print("prompted", flush=True)
        for answer, word in (("allow_once", "allowed"), ("reject_once", "denied")):
            editor.answer = answer
            turn = await asks("ASK")
            assert turn.stop_reason == "end_turn" and word in editor.text, (turn, editor.text)
            assert "rm x" in str(editor.asked[-1]), editor.asked
            print(word, flush=True)
        editor.spoke.clear()
        working = asyncio.create_task(asks("WAIT"))
        await editor.spoke.wait()
        await agent.cancel(session_id=session)
        turn = await working
        assert turn.stop_reason == "cancelled", turn
        print("cancelled", flush=True)


asyncio.run(asyncio.wait_for(main(), PATIENCE))
