"""The description of the service names every path, the forms of its bodies, and what needs the token."""


def test_every_route_is_described_with_its_words_and_forms(shared):
    described = shared.get("/openapi.json").document
    paths, forms = described["paths"], described["components"]["schemas"]
    assert set(paths) >= {"/calibrate", "/heads/{head}/feedback", "/v2/models/{name}/versions/{version}/infer"}
    for path, methods in paths.items():
        for method, one in methods.items():
            assert one.get("description"), (path, method)
            assert ("security" in one) == (method == "post" and "infer" not in path and "calibrate" not in path)
    assert set(forms) >= {"Question", "Answer", "Feedback", "Taken", "Moved", "Versions", "Inference"}
    assert forms["Question"]["required"] == ["score"]
