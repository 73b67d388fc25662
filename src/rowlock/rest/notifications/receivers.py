"""Tell a receiver, of whichever kind it is."""

from __future__ import annotations

from rowlock.documents.notify_address import NotifyAddress
from rowlock.documents.web_address import WebAddress
from rowlock.rest.notifications import programs, webhook
from rowlock.rest.notifications.message import Message
from rowlock.rest.notifications.webhook import Answer, Judge


async def deliver(address: NotifyAddress, message: Message, judge: Judge) -> Answer:
    """Returns a good answer. Raises Undelivered."""
    if isinstance(address, WebAddress):
        return await webhook.post_well(address, message, judge)
    return await programs.hand_over(address, message, judge)


async def post(address: NotifyAddress, message: Message, judge: Judge) -> Answer:
    """Returns the answer, whatever it is. Raises Undelivered when there is none, and for a program that fails."""
    if isinstance(address, WebAddress):
        return await webhook.post(address, message, judge)
    return await programs.hand_over(address, message, judge)
