"""Every attribute that the Python package uses of its own modules exists. `make lint` runs pylint for more; this needs
only Python."""
import ast
import os

from launching import TOP

PYTHON = os.path.join(TOP, "python")
# Modules that the build adds to the package.
BUILT = {"fulldeck": {"_C", "_build"}}


def parsed():
    """Name of a module -> its tree, for every file of the package."""
    found = {}
    for folder, _, names in os.walk(os.path.join(PYTHON, "fulldeck")):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                module = os.path.relpath(path, PYTHON)[:-len(".py")].replace(os.sep, ".")
                with open(path, encoding="utf-8") as file:
                    found[module[:-len(".__init__")] if module.endswith(".__init__") else module] = ast.parse(file.read(), path)
    return found


def bound(target):
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def names_of(tree):
    """The names of a module: bound at its top level, also inside if, try and loops, and bound by functions as
    global."""
    names = {"__name__", "__file__", "__doc__", "__path__"}
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        for target in getattr(node, "targets", []) + [getattr(node, "target", None)]:
            names |= bound(target) if target is not None else set()
        pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.excepthandler))]
    return names | {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}


def missing(modules):
    """"module:line: alias.name" of each name that is used but does not exist in a module of the package."""
    have = {module: names_of(tree) | BUILT.get(module, set()) | {other[len(module) + 1:].partition(".")[0] for other in modules if other.startswith(module + ".")}
            for module, tree in modules.items()}
    found = []
    for module, tree in modules.items():
        aliases = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in have:
                for each in node.names:
                    whole = node.module + "." + each.name
                    if whole in have:
                        aliases[each.asname or each.name] = whole
                    elif each.name not in have[node.module]:
                        found.append("{}:{}: from {} import {}".format(module, node.lineno, node.module, each.name))
            elif isinstance(node, ast.Import):
                aliases.update({each.asname: each.name for each in node.names if each.asname and each.name in have})
        shadowed = {argument.arg for node in ast.walk(tree) if isinstance(node, ast.arguments)
                    for argument in node.args + node.kwonlyargs} | {
                        name for node in ast.walk(tree) for target in getattr(node, "targets", []) for name in bound(target)
                        if isinstance(getattr(target, "ctx", None), ast.Store) and isinstance(target, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases and node.value.id not in shadowed:
                if node.attr not in have[aliases[node.value.id]]:
                    found.append("{}:{}: {}.{}".format(module, node.lineno, node.value.id, node.attr))
    return found


def test_every_name_that_the_package_uses_of_its_own_modules_is_there():
    modules = parsed()
    assert len(modules) > 25 and {"fulldeck.adapters.card", "fulldeck.adapters", "fulldeck.board"} <= set(modules)
    assert not missing(modules)


def test_a_name_that_is_not_there_is_found():
    """For example, Accelerate's adapter called card.has_vendor_module, which did not exist."""
    modules = parsed()
    modules["fulldeck.wrong"] = ast.parse("from fulldeck.adapters import card, nothing\nfrom fulldeck import board as told\n"
                                          "card.kind()\ncard.has_no_such_thing()\nif told.ours:\n    told.INIT, told.MISSING\n")
    assert missing(modules) == ["fulldeck.wrong:1: from fulldeck.adapters import nothing", "fulldeck.wrong:4: card.has_no_such_thing",
                                "fulldeck.wrong:6: told.MISSING"]
