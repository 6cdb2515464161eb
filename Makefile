# `make check` is what .ci/run does, less the installation.
.PHONY: build test race vet fmt lint vulncheck fuzz bench golden examples release check

GO ?= go
FUZZTIME ?= 10s

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o dist/crawlgate ./cmd/crawlgate

test:
	$(GO) test -tags slow -timeout 30m ./...

race:
	$(GO) test -race -tags slow -timeout 60m ./...

vet:
	$(GO) vet -tags slow ./...

fmt:
	gofumpt -l -w .

lint:
	golangci-lint config verify
	golangci-lint run

vulncheck:
	.ci/vulncheck

fuzz:
	.ci/fuzz $(FUZZTIME)

# Writes the golden files and the generated parts of docs/. The pages of the reasons, in the root, show golden files of enforce.
golden:
	$(GO) test ./cli ./enforce ./fetch -update
	$(GO) test . -update

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

examples: build
	.ci/examples dist/crawlgate

# Everything that is published, in dist/release; packaging/reproduce.sh makes it again elsewhere and compares.
release:
	packaging/release.sh dist/release

check: vet lint vulncheck test race fuzz examples
