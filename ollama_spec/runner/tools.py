"""Tools as Ollama's structs hold them: other JSON-schema keywords are lost there (contract 1.4),
and so must not reach the prompt here either."""

from __future__ import annotations

from typing import Any

from ollama_spec.runner import decode
from ollama_spec.runner.apierror import ApiError

_TOOL: decode.Fields = {"type": "string", "items": "any", "function": "api.ToolFunction"}
_FUNCTION: decode.Fields = {
    "name": "string",
    "description": "string",
    "parameters": "api.ToolFunctionParameters",
}
_PARAMETERS: decode.Fields = {
    "type": "string",
    "$defs": "any",
    "items": "any",
    "required": "[]string",
    "properties": "map[string]api.ToolProperty",
}
_PROPERTY: decode.Fields = {
    "anyOf": "[]api.ToolProperty",
    "type": "any",
    "items": "any",
    "description": "string",
    "enum": "[]interface {}",
    "properties": "map[string]api.ToolProperty",
    "required": "[]string",
}


def tool(value: Any) -> dict[str, Any]:
    """One entry of `tools`, in Ollama's order of keys."""
    given = _fields(value, _TOOL, "Tool")
    function = _fields(given.get("function", {}), _FUNCTION, "ToolFunction")
    parameters = _fields(function.get("parameters", {}), _PARAMETERS, "ToolFunctionParameters")
    properties = parameters.pop("properties", None)
    whole: dict[str, Any] = {"type": given.get("type", "")}
    if "items" in given:
        whole["items"] = given["items"]
    whole["function"] = {"name": function.get("name", "")}
    if function.get("description"):
        whole["function"]["description"] = function["description"]
    whole["function"]["parameters"] = {
        "type": parameters.pop("type", ""),
        **_filled(parameters, ("$defs", "items", "required")),
        "properties": None if properties is None else _properties(properties),
    }
    return whole


def _properties(value: dict[str, Any]) -> dict[str, Any]:
    return {name: _property(item) for name, item in value.items()}


def _property(value: Any) -> dict[str, Any]:
    given = _fields(value, _PROPERTY, "ToolProperty")
    if "anyOf" in given:
        given["anyOf"] = [_property(item) for item in given["anyOf"]]
    if "properties" in given:
        given["properties"] = _properties(given["properties"])
    kinds = given.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        got = decode.kind_of(given["type"])
        raise ApiError(400, f"json: cannot unmarshal {got} into Go value of type []string")
    if len(kinds) == 1:
        given["type"] = kinds[0]
    return _filled(given, tuple(_PROPERTY))


def _fields(value: Any, known: decode.Fields, struct: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = decode.kind_of(value)
        raise ApiError(400, f"json: cannot unmarshal {kind} into Go value of type api.{struct}")
    return decode.fields(value, known, struct)


def _filled(value: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    """The keys that Go's `omitempty` keeps, in its order; an empty map stays."""
    return {
        key: value[key]
        for key in order
        if key in value and (value[key] not in ("", []) or key in ("$defs", "items"))
    }
