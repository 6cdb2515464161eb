module github.com/crawlgate/crawlgate/packaging/sbom

go 1.26.8

require github.com/CycloneDX/cyclonedx-go v0.12.0
