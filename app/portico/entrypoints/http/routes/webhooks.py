"""Routes of webhooks: the endpoints that hear of a tenant, and the deliveries to them."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from portico.domain.contract.constrained_types import WebhookName
from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.correlation import Header
from portico.entrypoints.http.errors import JSON, WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Collection, Page, describe_body, failures
from portico.entrypoints.http.parameters import (
    DeliveryIdInPath,
    DeliveryListQuery,
    decode_cursor,
    encode_cursor,
    readable_query,
)
from portico.orchestration.webhooks import (
    DeliveryAccepted,
    DeliveryView,
    EndpointRequest,
    EndpointView,
    NewEndpointView,
)

router = APIRouter(tags=["webhooks"], dependencies=[AUTHENTICATED])
WEBHOOKS = "/v1/webhooks"
DELIVERIES = f"{WEBHOOKS}/deliveries"
ENDPOINT = f"{WEBHOOKS}/{{name}}"
_NO_STORE: Header = (b"cache-control", b"no-store")
EndpointName = Annotated[WebhookName, Path(description="Name of the endpoint.")]
_FAILURES = failures(*READ_FAILURES, Code.ACCESS_DENIED)
_CHANGES = failures(*READ_FAILURES, Code.ACCESS_DENIED, Code.REQUEST_ID_CONFLICT)


@router.get(
    WEBHOOKS,
    operation_id="listWebhooks",
    summary="List endpoints of webhooks, by name",
    response_model=Collection[EndpointView],
    responses=failures(Code.ACCESS_DENIED, Code.STORAGE_UNAVAILABLE),
)
async def list_endpoints(context: Context) -> Response:
    """Return the endpoints that hear of the caller's tenant, those of the configuration included.

    Needs `can_manage_webhooks` and `can_view_tenant`, as every route of webhooks does.
    """
    found = await context.facade.webhooks.endpoints(context.principal)
    return context.json_response(orjson.dumps({"data": [each.model_dump(mode="json") for each in found]}))


@router.get(
    DELIVERIES,
    operation_id="listDeliveries",
    summary="List deliveries, newest first",
    response_model=Page[DeliveryView, str],
    responses=_FAILURES,
    dependencies=[Depends(readable_query)],
)
async def list_deliveries(context: Context, query: Annotated[DeliveryListQuery, Query()]) -> Response:
    """Return one page of the deliveries of the caller's tenant. Delivered ones stay 7 days, dead ones 90."""
    after = decode_cursor(context.principal, DELIVERIES, query.after)
    page = await context.facade.webhooks.deliveries(context.principal, query.selection, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json()) for each in page.deliveries]
    return context.page_response(data, encode_cursor(context.principal, DELIVERIES, page.next))


@router.post(
    f"{DELIVERIES}/{{delivery_id}}/retry",
    operation_id="retryDelivery",
    summary="Send a delivery again",
    response_model=DeliveryAccepted,
    response_description="It is sent soon, with the same `webhook-id`",
    status_code=202,
    responses=_FAILURES,
)
async def retry_delivery(context: Context, delivery_id: DeliveryIdInPath) -> Response:
    """Send a delivery again, dead or not. If it fails it is tried again as a new one is.

    An endpoint that is disabled gets one attempt; if that is delivered, the endpoint is enabled.
    """
    return context.object_response(await context.facade.webhooks.retry(context.principal, delivery_id), 202)


@router.get(
    ENDPOINT,
    operation_id="getWebhook",
    summary="Show an endpoint of webhooks",
    response_model=EndpointView,
    responses=_FAILURES,
)
async def show_endpoint(context: Context, name: EndpointName) -> Response:
    """Return an endpoint without its secret."""
    return context.object_response(await context.facade.webhooks.show(context.principal, name))


@router.put(
    ENDPOINT,
    operation_id="putWebhook",
    summary="Make or change an endpoint of webhooks",
    response_model=EndpointView,
    response_description="The endpoint, changed",
    responses={
        201: {"model": NewEndpointView, "description": "The endpoint, which is new, with its secret this once"},
        **failures(
            *(*READ_FAILURES, Code.ACCESS_DENIED, Code.REQUEST_ID_CONFLICT, Code.REQUEST_RATE_LIMITED),
            *(Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA),
        ),
    },
    openapi_extra=describe_body(EndpointRequest),
)
async def put_endpoint(
    context: Context, name: EndpointName, body: Annotated[EndpointRequest, json_body(EndpointRequest)]
) -> Response:
    """Make an endpoint, at most 20 in a tenant, or change one, which is enabled by that. Its secret stays.

    The URL has https and no address of a private network. One of the configuration is read-only.
    """
    view, is_new = await context.facade.webhooks.put(context.principal, name, body)
    return _unstored(context, view, 201) if is_new else context.object_response(view)


@router.delete(
    ENDPOINT,
    operation_id="deleteWebhook",
    summary="Delete an endpoint of webhooks",
    response_class=Response,
    response_description="The endpoint is gone, with its deliveries",
    status_code=204,
    responses=_CHANGES,
)
async def delete_endpoint(context: Context, name: EndpointName) -> Response:
    """Delete an endpoint. What waits for it is not delivered any more."""
    await context.facade.webhooks.delete(context.principal, name)
    return WholeResponse(204, b"", context.correlate().headers())


@router.post(
    f"{ENDPOINT}/rotate",
    operation_id="rotateWebhookSecret",
    summary="Give an endpoint of webhooks a new secret",
    response_model=NewEndpointView,
    response_description="The endpoint, with its new secret this once",
    responses=_CHANGES,
)
async def rotate_secret(context: Context, name: EndpointName) -> Response:
    """Make a new secret. For 24 hours deliveries have a signature of the earlier one, too."""
    return _unstored(context, await context.facade.webhooks.rotate(context.principal, name), 200)


@router.post(
    f"{ENDPOINT}/test",
    operation_id="testWebhook",
    summary="Send an endpoint of webhooks a test",
    response_model=DeliveryAccepted,
    response_description="The test is sent soon",
    status_code=202,
    responses=_FAILURES,
)
async def test_endpoint(context: Context, name: EndpointName) -> Response:
    """Send a message of the type `webhook.test`, also if the endpoint hears of other events only, or is disabled."""
    return context.object_response(await context.facade.webhooks.test(context.principal, name), 202)


def _unstored(context: Context, view: EndpointView, status: int) -> Response:
    """Return a response with a secret, which no cache may store."""
    headers = (*context.correlate().headers(), _NO_STORE)
    return WholeResponse(status, view.model_dump_json().encode(), (JSON, *headers))
