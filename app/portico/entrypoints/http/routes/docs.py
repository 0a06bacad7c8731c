"""`GET /docs`: the API description as a page."""

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from portico.entrypoints.http.docs.page import CONTENT_SECURITY_POLICY, docs_page

router = APIRouter()


@router.get("/docs", include_in_schema=False)
async def show_docs(request: Request) -> Response:
    """Return the page."""
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return HTMLResponse(docs_page(request.app.openapi()), headers=headers)
