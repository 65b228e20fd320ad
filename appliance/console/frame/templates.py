"""Compiles templates to less Python than Jinja does, once for each language; what they render to is the same.

Half of the work for a page was Jinja's way of running it: every piece of text passed through the generators of the block, the
template and its parent; a call in a template passed through `Context.call`, which looks for functions that take the context; and
a translated text was looked up for each page.  The code of `_Compiler` collects the pieces of a block in a list, calls directly,
and has the translated texts in it.  `tests/console/test_templates.py` renders the same templates with Jinja's own compiler.
"""

from collections.abc import Iterable
from keyword import iskeyword
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, nodes
from jinja2.compiler import CodeGenerator, Frame

from appliance.core import texts

_TEXTS = ("_", "gettext")


class _Compiler(CodeGenerator):
    """Jinja's compiler, for templates that always escape HTML and whose functions never take Jinja's context."""

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("to_html = environment.to_html")

    def blockvisit(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        """Give the body of a template and of a block a list for its pieces, as Jinja does for a macro."""
        is_whole = frame.buffer is None
        if is_whole:
            self.buffer(frame)
        super().blockvisit(body, frame)
        if is_whole:
            self.writeline(f"yield concat({frame.buffer})")

    def visit_Include(self, node: nodes.Include, frame: Frame) -> None:  # noqa: N802  Jinja's name
        if not node.with_context:
            self.fail("an include without context would yield its text before the pieces in the list", node.lineno)
        super().visit_Include(node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802
        text = _constant_text(node)
        if text is not None:
            self.write(f"Markup({text!r})")
        elif forward_caller or node.dyn_args or node.dyn_kwargs or any(iskeyword(each.key) for each in node.kwargs):
            super().visit_Call(node, frame, forward_caller=forward_caller)
        else:
            self.visit(node.node, frame)
            self.write("(")
            for argument in (*node.args, *node.kwargs):
                self.visit(argument, frame)
                self.write(", ")
            self.write(")")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        text = _constant_text(node)
        return super()._output_child_to_const(node, frame, finalize) if text is None else text

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write("to_html(")


def _constant_text(node: nodes.Node) -> str | None:
    """The translation of `_("a text")`, as HTML; None for anything else."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in _TEXTS:
        match node.args:
            case [nodes.Const(value=str(text))] if not node.kwargs:
                return str(texts.gettext_in_html(text))
    return None


class Templates(Environment):
    """The templates of a folder in the current language; to be used in that language only."""

    code_generator_class = _Compiler
    to_html = staticmethod(texts.to_html)

    def __init__(self, folder: str) -> None:
        super().__init__(
            loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        texts.install_translations(self)
