// Package ftphttp answers HTTP requests for ftp URLs by asking the FTP server.
package ftphttp
