"""Import names of SageMaker's distributed libraries. This version has none of them; each says so and what works."""
